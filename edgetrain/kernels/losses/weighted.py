"""Losses of element by element whose samples have weights: those of this folder."""

import numpy as np

from ..jit import inline
from ..registry import kernel
from ..words.mathf import ONE, ZERO
from ..words.prim import FP32, div, ld_i64, st_f64
from .bce import binary, binary_slope, same_side, weighted, weighted_slope
from .difference import absolute, absolute_slope, square, square_slope
from .elementwise import never
from .huber import huber, huber_slope
from .sums import CHUNKS, COUNT, gradient_scale


def _weighted(name: str, value, slope, is_correct=never) -> None:
    """Register `<name>_w_loss` and `<name>_w_bwd` over n elements, `rows` of them a sample.

    Args:
      value, slope: inline functions of (x, t, p) in float32, as in elementwise.py.
    """

    @kernel(
        f"{name}_w_loss",
        "x:r:S[n] t:r:f32[n] sw:r:f32[n//rows] partials:w:f64[256] ctl:r:i64[64] n rows p:f",
        check="rows >= 1",
    )
    def loss(S):
        ld, ld32 = S.ld, FP32.ld

        def run(thread, nthreads, k):
            valid = min(k.n, ld_i64(k.ctl, COUNT) * k.rows)
            last = div(CHUNKS * (thread + 1), nthreads)
            for chunk in range(div(CHUNKS * thread, nthreads), last):
                total = counted = correct = weights = 0.0
                for i in range(
                    div(k.n * chunk, CHUNKS), min(div(k.n * (chunk + 1), CHUNKS), valid)
                ):
                    weight = ld32(k.sw, div(i, k.rows))
                    if weight != ZERO:
                        a, b = ld(k.x, i), ld32(k.t, i)
                        total += np.float64(weight) * np.float64(value(a, b, k.p))
                        counted += 1.0
                        weights += np.float64(weight)
                        correct += 1.0 if is_correct(a, b) else 0.0
                st_f64(k.partials, 4 * chunk, total)
                st_f64(k.partials, 4 * chunk + 1, counted)
                st_f64(k.partials, 4 * chunk + 2, correct)
                st_f64(k.partials, 4 * chunk + 3, weights)

        return run

    @kernel(
        f"{name}_w_bwd",
        "x:r:S[n] t:r:f32[n] sw:r:f32[n//rows] dx:m:S[n] ctl:r:i64[64] n rows p:f acc",
        check="rows >= 1",
    )
    def backward(S):
        ld, st, ld32 = S.ld, S.st, FP32.ld

        def run(thread, nthreads, k):
            valid = min(k.n, ld_i64(k.ctl, COUNT) * k.rows)
            scale = gradient_scale(k.ctl)
            for i in range(div(k.n * thread, nthreads), div(k.n * (thread + 1), nthreads)):
                weight = ld32(k.sw, div(i, k.rows)) if i < valid else ZERO
                d = (
                    weight * scale * slope(ld(k.x, i), ld32(k.t, i), k.p)
                    if weight != ZERO
                    else ZERO
                )
                st(k.dx, i, d + ld(k.dx, i) if k.acc != 0 else d)

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


@inline
def _itself(x, t, p):
    return x


@inline
def _one(x, t, p):
    return ONE


_weighted("mse", square, square_slope)
_weighted("l1", absolute, absolute_slope)
_weighted("bce", binary, binary_slope, same_side)
_weighted("bce_pos", weighted, weighted_slope, same_side)
_weighted("huber", huber, huber_slope)
_weighted("output", _itself, _one)
