"""The grammar that every pass must leave intact. A breach is a bug of ours, not of the model."""

from ..ir import Graph


class GraphError(AssertionError):
    """A pass produced a graph that cannot be run."""


def verify(graph: Graph) -> Graph:
    """Check definitions, views and names; returns the graph.

    Raises:
      GraphError: a value that is read before it is written, unknown, or a view of another size.
    """
    written = {graph.root(name) for name in graph.inputs}
    names = set()
    for node in graph.nodes:
        if node.name in names:
            raise GraphError(f"two nodes are named {node.name!r}")
        names.add(node.name)
        for name in (*node.reads, *node.writes):
            if name not in graph.values:
                raise GraphError(f"node {node.name!r}: value {name!r} is unknown")
        for name in node.reads:
            root = graph.root(name)
            if root not in written and not graph.values[root].persistent:
                raise GraphError(f"node {node.name!r} reads {name!r} before it is written")
        written.update(graph.root(name) for name in node.writes)
    for value in graph.values.values():
        if value.view_of and graph.values[value.view_of].size != value.size:
            raise GraphError(f"view {value.name!r} has another size than {value.view_of!r}")
    return graph
