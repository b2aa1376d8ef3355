"""Saved values in fewer bits: packed when forward has read them, unpacked for backward.

compiler/passes/saved.py puts these into a training graph. `pack_sides`, of x [n, c, ...], takes
statistics, scale and shift of a batch norm, or "" for each; attrs act, lo, hi: of the activation
whose kinks no rounding crosses.
"""

from .registry import Op, register
from .strides import channels


def _whole(values, attrs) -> dict[str, int]:
    return {"n": (values["x"] if "x" in values else values["w"]).size}


PACK = register(Op("pack", "x -> y", _whole, cost=4, gradient=""))
PACK_SIDES = register(Op("pack_sides", "x stat gamma beta -> y", channels, cost=8, gradient=""))
UNPACK = register(Op("unpack", "w -> y", _whole, cost=1, gradient=""))
