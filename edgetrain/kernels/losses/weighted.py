"""Losses of element by element whose samples have weights: those of loss.py and of this folder."""

import numpy as np

from .. import control
from ..jit import inline
from ..loss import (
    _absolute,
    _absolute_slope,
    _binary,
    _binary_slope,
    _same_side,
    _square,
    _square_slope,
    gradient_scale,
)
from ..registry import kernel
from ..words.prim import FP32, div, ld_i64, st_f64
from .bce_pos import binary, binary_slope, same_side
from .elementwise import never
from .huber import huber, huber_slope

ZERO, ONE = np.float32(0), np.float32(1)
CHUNKS, COUNT = control.PARTIALS, control.COUNT


def _weighted(name: str, value, slope, is_correct=never) -> None:
    """Register `<name>_w_loss` and `<name>_w_bwd` over n elements, `rows` of them a sample.

    Args:
      value, slope: inline functions of (x, t, p) in float32, as in losses/elementwise.py.
    """

    @kernel(
        f"{name}_w_loss",
        "x:r:S[n] t:r:f32[n] sw:r:f32[n//rows] partials:w:f64[256] ctl:r:i64[64] n rows p:f",
        check="rows >= 1",
    )
    def loss(S):
        ld, ld32 = S.ld, FP32.ld

        def run(thread, nthreads, x, t, sw, partials, ctl, n, rows, p):
            valid = min(n, ld_i64(ctl, COUNT) * rows)
            last = div(CHUNKS * (thread + 1), nthreads)
            for chunk in range(div(CHUNKS * thread, nthreads), last):
                total = counted = correct = weights = 0.0
                for i in range(div(n * chunk, CHUNKS), min(div(n * (chunk + 1), CHUNKS), valid)):
                    weight = ld32(sw, div(i, rows))
                    if weight != ZERO:
                        a, b = ld(x, i), ld32(t, i)
                        total += np.float64(weight) * np.float64(value(a, b, p))
                        counted += 1.0
                        weights += np.float64(weight)
                        correct += 1.0 if is_correct(a, b) else 0.0
                st_f64(partials, 4 * chunk, total)
                st_f64(partials, 4 * chunk + 1, counted)
                st_f64(partials, 4 * chunk + 2, correct)
                st_f64(partials, 4 * chunk + 3, weights)

        return run

    @kernel(
        f"{name}_w_bwd",
        "x:r:S[n] t:r:f32[n] sw:r:f32[n//rows] dx:m:S[n] ctl:r:i64[64] n rows p:f acc",
        check="rows >= 1",
    )
    def backward(S):
        ld, st, ld32 = S.ld, S.st, FP32.ld

        def run(thread, nthreads, x, t, sw, dx, ctl, n, rows, p, acc):
            valid = min(n, ld_i64(ctl, COUNT) * rows)
            scale = gradient_scale(ctl)
            for i in range(div(n * thread, nthreads), div(n * (thread + 1), nthreads)):
                weight = ld32(sw, div(i, rows)) if i < valid else ZERO
                d = weight * scale * slope(ld(x, i), ld32(t, i), p) if weight != ZERO else ZERO
                st(dx, i, d + ld(dx, i) if acc != 0 else d)

        return run

    loss.__doc__ = (
        f"As {name}_loss, with weights sw [samples] of at least 0: partials are, for each chunk, "
        "losses times weights, targets whose weight is not 0, correct ones of them, weights. p: "
        "the loss's own number, where it has one."
    )
    backward.__doc__ = (
        f"Gradient of {name}_w_loss times LOSS_SCALE / NOMINAL; 0 where masked or of weight 0. "
        "acc 1: added to dx; dx may be x."
    )


def _without(function):
    """A value or slope that has no number of its own."""

    @inline
    def same(x, t, p):
        return function(x, t)

    return same


@inline
def _itself(x, t, p):
    return x


@inline
def _one(x, t, p):
    return ONE


_weighted("mse", _without(_square), _without(_square_slope))
_weighted("l1", _without(_absolute), _without(_absolute_slope))
_weighted("bce", _without(_binary), _without(_binary_slope), _same_side)
_weighted("bce_pos", binary, binary_slope, same_side)
_weighted("huber", huber, huber_slope)
_weighted("output", _itself, _one)
