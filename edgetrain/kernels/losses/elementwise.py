"""Losses of element by element with a number of their own, made of a value and a slope."""

import numpy as np

from .. import control
from ..jit import inline
from ..loss import gradient_scale, put_chunk
from ..registry import kernel
from ..words.prim import FP32, div, ld_i64

ZERO = np.float32(0)
CHUNKS, COUNT = control.PARTIALS, control.COUNT


@inline
def never(x, t):
    """No prediction is counted."""
    return False


def elementwise(name: str, title: str, value, slope, is_correct=never) -> None:
    """Register `<name>_loss` and `<name>_bwd` over n elements, `rows` of them a sample.

    Args:
      value, slope: inline functions of (x, t, p) in float32; p is the loss's own number.
    """

    @kernel(
        f"{name}_loss",
        "x:r:S[n] t:r:f32[n] partials:w:f64[192] ctl:r:i64[64] n rows p:f",
        check="rows >= 1",
    )
    def loss(S):
        ld, ld32 = S.ld, FP32.ld

        def run(thread, nthreads, x, t, partials, ctl, n, rows, p):
            valid = min(n, ld_i64(ctl, COUNT) * rows)
            last = div(CHUNKS * (thread + 1), nthreads)
            for chunk in range(div(CHUNKS * thread, nthreads), last):
                total = counted = correct = 0.0
                for i in range(div(n * chunk, CHUNKS), min(div(n * (chunk + 1), CHUNKS), valid)):
                    a, b = ld(x, i), ld32(t, i)
                    total += np.float64(value(a, b, p))
                    counted += 1.0
                    correct += 1.0 if is_correct(a, b) else 0.0
                put_chunk(partials, chunk, total, counted, correct)

        return run

    @kernel(
        f"{name}_bwd",
        "x:r:S[n] t:r:f32[n] dx:m:S[n] ctl:r:i64[64] n rows p:f acc",
        check="rows >= 1",
    )
    def backward(S):
        ld, st, ld32 = S.ld, S.st, FP32.ld

        def run(thread, nthreads, x, t, dx, ctl, n, rows, p, acc):
            valid = min(n, ld_i64(ctl, COUNT) * rows)
            scale = gradient_scale(ctl)
            for i in range(div(n * thread, nthreads), div(n * (thread + 1), nthreads)):
                d = scale * slope(ld(x, i), ld32(t, i), p) if i < valid else ZERO
                st(dx, i, d + ld(dx, i) if acc != 0 else d)

        return run

    loss.__doc__ = (
        f"{title} of x [n] and float32 targets t [n], as ce_loss: losses in float32, sums in "
        "float64 in order of elements. A target is an element."
    )
    backward.__doc__ = (
        f"Gradient of {name}_loss times LOSS_SCALE / NOMINAL; 0 where masked. acc 1: added to "
        "dx; dx may be x."
    )
