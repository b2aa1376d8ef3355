"""Losses of element by element, made of a value and a slope."""

import numpy as np

from ..jit import inline
from ..registry import kernel
from ..words.mathf import ZERO
from ..words.prim import FP32, div, ld_i64
from .sums import CHUNKS, COUNT, gradient_scale, put_chunk


@inline
def never(x, t):
    """No prediction is counted."""
    return False


@inline
def _own(k):
    return k.p


@inline
def _none(k):
    return ZERO


def elementwise(name: str, title: str, value, slope, is_correct=never, number=False) -> None:
    """Register `<name>_loss` and `<name>_bwd` over n elements, `rows` of them a sample.

    Args:
      value, slope: inline functions of (x, t, p) in float32.
      number: whether the loss has a number p of its own, else p is 0.
    """
    own, operand = (_own, " p:f") if number else (_none, "")

    def loss(S):
        ld, ld32 = S.ld, FP32.ld

        def run(thread, nthreads, k):
            valid = min(k.n, ld_i64(k.ctl, COUNT) * k.rows)
            last = div(CHUNKS * (thread + 1), nthreads)
            for chunk in range(div(CHUNKS * thread, nthreads), last):
                total = counted = correct = 0.0
                for i in range(
                    div(k.n * chunk, CHUNKS), min(div(k.n * (chunk + 1), CHUNKS), valid)
                ):
                    a, b = ld(k.x, i), ld32(k.t, i)
                    total += np.float64(value(a, b, own(k)))
                    counted += 1.0
                    correct += 1.0 if is_correct(a, b) else 0.0
                put_chunk(k.partials, chunk, total, counted, correct)

        return run

    def backward(S):
        ld, st, ld32 = S.ld, S.st, FP32.ld

        def run(thread, nthreads, k):
            valid = min(k.n, ld_i64(k.ctl, COUNT) * k.rows)
            scale = gradient_scale(k.ctl)
            for i in range(div(k.n * thread, nthreads), div(k.n * (thread + 1), nthreads)):
                d = scale * slope(ld(k.x, i), ld32(k.t, i), own(k)) if i < valid else ZERO
                st(k.dx, i, d + ld(k.dx, i) if k.acc != 0 else d)

        return run

    loss.__doc__ = (
        f"{title} of x [n] and float32 targets t [n], as ce_loss: losses in float32, sums in "
        "float64 in order of elements. A target is an element."
    )
    backward.__doc__ = (
        f"Gradient of {name}_loss times LOSS_SCALE / NOMINAL; 0 where masked. acc 1: added to "
        "dx; dx may be x."
    )
    loss.__module__ = backward.__module__ = value.__module__  # where this is called
    for part, factory, result, acc in (
        ("loss", loss, "partials:w:f64[192]", ""),
        ("bwd", backward, "dx:m:S[n]", " acc"),
    ):
        operands = f"x:r:S[n] t:r:f32[n] {result} ctl:r:i64[64] n rows{operand}{acc}"
        kernel(f"{name}_{part}", operands, check="rows >= 1")(factory)
