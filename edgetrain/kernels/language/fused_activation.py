"""Folded normalisation and activations, shared by convolution and batch-norm kernels.

The integer `act` is an activation code of elementwise/formulas.py, 0 for none; lo and hi are the
function's a and b. Every kernel that recomputes act(gamma * (x - mean) * invstd + beta) evaluates
fma(x, a, b) with the same a and b, so they all get the same bits.
"""

from collections.abc import Callable

import numpy as np

from ..elementwise.formulas import ROWS
from ..elementwise.intrinsics import compiled
from .inlining import inline
from .number import alike, fma
from .prim import FP32

NONE, RELU, CLIP, HARDSWISH = (0, *(ROWS[name].act for name in ("relu", "clip", "hardswish")))
ZERO, ONE, THREE = np.float32(0), np.float32(1), np.float32(3)
_ld = FP32.ld


def _values(rows) -> Callable:
    """Inline (code, z, lo, hi): the function in `rows` that has this code, of z."""
    if not rows:
        return inline(lambda code, z, lo, hi: z)
    act, value, others = rows[0].act, compiled(rows[0].value), _values(rows[1:])

    @inline
    def chosen(code, z, lo, hi):
        if code == act:
            return value(z, lo, hi)
        return others(code, z, lo, hi)

    return chosen


def _slope(row) -> Callable:
    """Inline (z, lo, hi): the row's slope formula, or its vjp of a gradient of 1."""
    if row.slope is not None:
        return compiled(row.slope)
    value, vjp, of_output = compiled(row.value), compiled(row.vjp), row.saved == "y"

    @inline
    def slope(z, lo, hi):
        return vjp(value(z, lo, hi) if of_output else z, alike(z, ONE), lo, hi)

    return slope


def _slopes(rows) -> Callable:
    if not rows:
        return inline(lambda code, z, lo, hi: alike(z, ONE))
    act, slope, others = rows[0].act, _slope(rows[0]), _slopes(rows[1:])

    @inline
    def chosen(code, z, lo, hi):
        if code == act:
            return slope(z, lo, hi)
        return others(code, z, lo, hi)

    return chosen


_FUSED = sorted((row for row in ROWS.values() if row.act), key=lambda row: row.act)
# (code, z, lo, hi) -> activation of z, a float32 or a vector of them; lo and hi are float32.
act_value = _values(_FUSED)
# (code, z, lo, hi) -> its derivative at z; at jumps, torch's.
act_slope = _slopes(_FUSED)


@inline
def norm_scale(stat, gamma, ch, c):
    """a of z = fma(x, a, b) for channel `ch` of `c`; an absent gamma (address 0) is 1."""
    invstd = _ld(stat, c + ch)
    return invstd * _ld(gamma, ch) if gamma != 0 else invstd


@inline
def norm_shift(stat, gamma, beta, ch, c):
    """b of z = fma(x, a, b); an absent beta is 0."""
    shift = _ld(beta, ch) if beta != 0 else ZERO
    return fma(-_ld(stat, ch), norm_scale(stat, gamma, ch, c), shift)


@inline
def norm_line(args, ch):
    """(a, b) of z = fma(x, a, b) for channel `ch` of the record's c."""
    return norm_scale(args.stat, args.gamma, ch, args.c), norm_shift(
        args.stat, args.gamma, args.beta, ch, args.c
    )
