"""Checks after each pass that the graph is well-formed. An error is a bug in edgetrain."""

from ...ir import Graph


class GraphError(AssertionError):
    """A pass produced an invalid graph."""


def verify(graph: Graph) -> Graph:
    """Check definitions, views and names; returns the graph.

    Raises:
      GraphError: a value is unknown, read before it is written, or a view of another size.
    """
    _check_views(graph)
    values = graph.values
    roots = {name: graph.root(name) if value.view_of else name for name, value in values.items()}
    there = {name for name, value in values.items() if value.persistent}
    there.update(roots[name] for name in graph.inputs)
    names = set()
    for node in graph.nodes:
        if node.name in names:
            raise GraphError(f"two nodes are named {node.name!r}")
        names.add(node.name)
        reads, writes = node.reads, node.writes
        for name in (*reads, *writes):
            if name not in values:
                raise GraphError(f"node {node.name!r}: value {name!r} is unknown")
        for name in reads:
            if roots[name] not in there:
                raise GraphError(f"node {node.name!r} reads {name!r} before it is written")
        for name in writes:
            there.add(roots[name])
    for name in graph.outputs:
        if roots[name] not in there:
            raise GraphError(f"output {name!r} is never written")
    return graph


def _check_views(graph: Graph) -> None:
    for value in graph.values.values():
        name = value.view_of
        if not name:
            continue
        seen = {value.name}
        while name:
            if name not in graph.values:
                raise GraphError(f"view {value.name!r}: value {name!r} is unknown")
            if name in seen:
                raise GraphError(f"view {value.name!r} is a view of itself")
            parent = graph.values[name]
            if (parent.size, parent.dtype) != (value.size, value.dtype):
                raise GraphError(f"view {value.name!r} has another size or dtype than {name!r}")
            seen.add(name)
            name = parent.view_of
