"""Operands that say how a result is stored."""

from ..ir import Graph, Node, Value
from ..ir.keys import key_of

PLAIN = {"acc": 0, "sr": 0, "key": 0, "ctl": None}  # overwritten, rounded to nearest


def store_as(node: Node, graph: Graph, out: Value) -> dict:
    """Operands acc, sr, key, ctl: whether to add, and whether to round stochastically."""
    accumulator = graph.values[graph.root(out.name)].role in ("accumulator", "fused")
    return {
        "acc": node.attrs.get("acc", 0),
        "sr": int(accumulator),
        "key": key_of(node.name),
        "ctl": "ctl" if accumulator else None,
    }
