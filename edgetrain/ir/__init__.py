"""The intermediate representation: frozen values, nodes and graphs, and their text form."""

from .graph import Builder, Call, Graph, Node, Value
from .storage import FORMATS, Format

__all__ = ["FORMATS", "Builder", "Call", "Format", "Graph", "Node", "Value"]
