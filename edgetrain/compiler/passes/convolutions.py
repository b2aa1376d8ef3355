"""Chooses each convolution's algorithm from its shapes alone, so all plans have the same, except
those of candidates in which every convolution is direct."""

from ...ir import Graph
from ...ops.registry import op
from ...units.convolutions import DIRECT
from ..options import Options


def choose_convolutions(graph: Graph, options: Options) -> Graph:
    """The graph with each convolution's algorithm in its attributes, unless it is direct."""
    if options.convolutions == DIRECT:
        return graph
    return graph.with_nodes([op(node.op).chosen(node, graph) for node in graph.nodes])
