"""The intermediate representation: frozen values, nodes and graphs, and their text form."""

from .graph import NBYTES, Builder, Call, Graph, Node, Value

__all__ = ["NBYTES", "Builder", "Call", "Graph", "Node", "Value"]
