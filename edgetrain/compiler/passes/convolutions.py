"""Which algorithm a convolution takes: each op answers from its shapes, the same in every plan."""

from ...ir import Graph
from ...ops.registry import op
from ...units.convolutions import DIRECT
from ..options import Options


def choose_convolutions(graph: Graph, options: Options) -> Graph:
    """The graph whose nodes say which of several algorithms they take; direct ones say nothing."""
    if options.convolutions == DIRECT:
        return graph
    return graph.with_nodes([op(node.op).chosen(node, graph) for node in graph.nodes])
