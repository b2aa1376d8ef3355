"""The intermediate representation: frozen values, nodes and graphs, and their text form."""

from typing import TYPE_CHECKING, Any

from .storage import FORMATS, Format
from .values import Call, Value

if TYPE_CHECKING:
    from .graph import Builder, Graph, Node

__all__ = ["FORMATS", "Builder", "Call", "Format", "Graph", "Node", "Value"]


def __getattr__(name: str) -> Any:
    """Loads the graph classes on first use; devices never need them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import graph

    return getattr(graph, name)
