"""Weight updates within the tape of a microbatch; inserted by compiler/passes/fused_update.py.

`grad_clear` creates a gradient that backward adds to, `fused_update` contains the calls that update
a weight (attrs calls), `fused_begin` the calls that run before the first update.
"""

from ..ir import Graph, Node
from .registry import Call, Op, register


class FusedUpdate(Op):
    """Inputs: gradient and weight; outputs: both, the optimizer's state, sums."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        return list(node.attrs["calls"])

    def flops(self, node: Node, graph: Graph) -> int:
        return sum(8 * graph.values[name].size for name in node.inputs[:1])


def _whole(values, attrs) -> dict[str, int]:
    return {"n": values["g"].size}


register(FusedUpdate("fused_begin", gradient="", recompute=False))
FUSED_UPDATE = register(FusedUpdate("fused_update", gradient="", recompute=False))
register(Op("grad_clear", "-> g", _whole, gradient="", recompute=False))
