"""Saved values in fewer bits: packed after their last use in forward, unpacked for backward.

compiler/passes/saved.py inserts these ops. `pack_sides`, of x [n, c, ...], takes statistics, scale
and shift of a batch norm, or "" for each; attrs act, lo, hi describe the activation whose kinks
must not be crossed by rounding.
"""

from .registry import Op, register
from .strides import channels


def _whole(values, attrs) -> dict[str, int]:
    return {"n": (values["x"] if "x" in values else values["w"]).size}


PACK = register(Op("pack", "x -> y", _whole, cost=4, gradient=""))
PACK_SIDES = register(Op("pack_sides", "x stat gamma beta -> y", channels, cost=8, gradient=""))
UNPACK = register(Op("unpack", "w -> y", _whole, cost=1, gradient=""))
