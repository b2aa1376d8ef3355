"""Losses, their gradients and the counters they add to.

A loss is a sum in 64 fixed chunks of positions, so it does not depend on threads. partials:
float64[3 * 64], for each chunk the sum of losses, the targets counted, the correct predictions.
Samples from ctl COUNT on are masked: they count nothing and get no gradient. `rows` positions
make one sample.
"""

import numpy as np

from . import control
from .jit import inline
from .registry import kernel
from .words.block import get, get_wide, new, new_wide, put
from .words.logits import item, items, surveyor, width
from .words.mathf import exp, fabs, log, log1p, sigmoid
from .words.prim import (
    FP32,
    div,
    ld_f64,
    ld_i32,
    ld_i64,
    mod,
    real_to_int,
    st_f64,
    st_i64,
    to_float,
)

ZERO, HALF, ONE, TWO = (np.float32(v) for v in (0, 0.5, 1, 2))
CHUNKS, COUNT = control.PARTIALS, control.COUNT
LOSS_SUM, TARGETS, CORRECT = control.LOSS_SUM, control.TARGETS, control.CORRECT
LOSS_SCALE, NOMINAL = control.LOSS_SCALE, control.NOMINAL


@inline
def gradient_scale(ctl):
    """float32: what gradients of a sum of losses are multiplied by."""
    return np.float32(ld_f64(ctl, LOSS_SCALE) / ld_f64(ctl, NOMINAL))


@inline
def put_chunk(partials, chunk, total, counted, correct):
    """Store the three sums of a chunk."""
    st_f64(partials, 3 * chunk, total)
    st_f64(partials, 3 * chunk + 1, counted)
    st_f64(partials, 3 * chunk + 2, correct)


@inline
def _counts(target, n, ignore):
    return target != ignore and target >= 0 and target < n


@kernel(
    "ce_loss",
    "x:r:S[outer*n*inner] t:r:i32[outer*inner] partials:w:f64[192] ctl:r:i64[64] "
    "outer n inner rows smoothing:f ignore",
    check="min(outer, n, inner, rows) >= 1",
)
def ce_loss(S):
    """Cross-entropy of logits x [outer, n, inner] with class indices t [outer, inner].

    A target equal to `ignore` or outside 0..n-1 counts nothing. The target's distribution is
    1 - smoothing on the class and smoothing / n everywhere. Outer index // rows is the sample.
    partials: a position's loss in float32, sums in float64 in order of positions; the sum over
    classes as in words/logits.py. A prediction is the first of the largest logits.
    """
    ld, survey = S.ld, surveyor(S)

    @inline
    def position_loss(x, at, n, inner, target, top, total, smoothing):
        logsum = log(np.float32(total))
        loss = (logsum - (ld(x, at + target * inner) - top)) * (ONE - smoothing)
        if smoothing != ZERO:
            below = 0.0
            for j in range(n):
                below += np.float64(ld(x, at + j * inner) - top)
            loss += smoothing * (logsum - np.float32(below) / to_float(n))
        return loss

    @inline
    def is_first(x, at, inner, target, top):
        earlier = 0
        for j in range(target):
            earlier += 1 if ld(x, at + j * inner) == top else 0
        return earlier == 0

    def run(thread, nthreads, x, t, partials, ctl, outer, n, inner, rows, smoothing, ignore):
        samples = min(outer, ld_i64(ctl, COUNT) * rows)
        count = items(outer, inner)
        wide, top = new_wide(), new()
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            total = counted = correct = 0.0
            for k in range(div(count * chunk, CHUNKS), div(count * (chunk + 1), CHUNKS)):
                base, used, blocks, step, length = item(k, n, inner)
                row = div(base, n * inner)
                first = row * inner + mod(base, n * inner)
                if row >= samples or (inner == 1 and not _counts(ld_i32(t, row), n, ignore)):
                    continue
                survey(x, wide, top, base, used, blocks, step, length)
                for q in range(1 if length >= 0 else used):
                    target = ld_i32(t, first + q)
                    if _counts(target, n, ignore):
                        best, at = get(top, q), base + q
                        loss = position_loss(
                            x, at, n, inner, target, best, get_wide(wide, q), smoothing
                        )
                        total += np.float64(loss)
                        counted += 1.0
                        if ld(x, at + target * inner) == best:
                            correct += 1.0 if is_first(x, at, inner, target, best) else 0.0
            put_chunk(partials, chunk, total, counted, correct)

    return run


@kernel(
    "ce_bwd",
    "x:r:S[outer*n*inner] t:r:i32[outer*inner] dx:m:S[outer*n*inner] ctl:r:i64[64] "
    "outer n inner rows smoothing:f ignore acc",
    check="min(outer, n, inner, rows) >= 1",
)
def ce_bwd(S):
    """Gradient of ce_loss: (softmax - target distribution) * LOSS_SCALE / NOMINAL, in x's layout.

    0 where masked or ignored. acc 1: added to dx, else dx is overwritten; dx may be x.
    """
    ld, st, survey = S.ld, S.st, surveyor(S)

    def run(thread, nthreads, x, t, dx, ctl, outer, n, inner, rows, smoothing, ignore, acc):
        samples = min(outer, ld_i64(ctl, COUNT) * rows)
        scale, everywhere = gradient_scale(ctl), smoothing / to_float(n)
        wide, top, share, live, hot, out = new_wide(), new(), new(), new(), new(), new()
        count = items(outer, inner)
        for k in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
            base, used, blocks, step, length = item(k, n, inner)
            row = div(base, n * inner)
            first = row * inner + mod(base, n * inner)
            positions = 1 if length >= 0 else used
            survey(x, wide, top, base, used, blocks, step, length)
            for j in range(used):
                target = ld_i32(t, first + min(j, positions - 1))
                valid = row < samples and _counts(target, n, ignore)
                put(live, j, ONE if valid else ZERO)
                put(share, j, ONE / np.float32(get_wide(wide, j)))
            # what the target's class gets; x may be dx, so it is taken before
            for j in range(positions):
                if get(live, j) != ZERO:
                    q = base + j + ld_i32(t, first + j) * inner
                    value = exp(ld(x, q) - get(top, j)) * get(share, j) - everywhere
                    value = (value - (ONE - smoothing)) * scale
                    put(hot, j, value + ld(dx, q) if acc != 0 else value)
            for b in range(blocks):
                at, m = base + b * step, width(b, used, length)
                for j in range(m):
                    value = exp(ld(x, at + j) - get(top, j)) * get(share, j) - everywhere
                    put(out, j, value * scale if get(live, j) != ZERO else ZERO)
                for j in range(m):
                    value = get(out, j)
                    st(dx, at + j, value + ld(dx, at + j) if acc != 0 else value)
            for j in range(positions):
                if get(live, j) != ZERO:
                    st(dx, base + j + ld_i32(t, first + j) * inner, get(hot, j))

    return run


@inline
def _square(x, t):
    return (x - t) * (x - t)


@inline
def _square_slope(x, t):
    return TWO * (x - t)


@inline
def _absolute(x, t):
    return fabs(x - t)


@inline
def _absolute_slope(x, t):
    d = x - t
    slope = ONE if d > ZERO else (-ONE if d < ZERO else d)  # d: 0 stays 0, NaN stays NaN
    return slope


@inline
def _binary(x, t):
    positive = ZERO if x < ZERO else x
    return positive - x * t + log1p(exp(-fabs(x)))


@inline
def _binary_slope(x, t):
    return sigmoid(x) - t


@inline
def _never(x, t):
    return False


@inline
def _same_side(x, t):
    return (x > ZERO) == (t > HALF)


def _elementwise(name: str, title: str, value, slope, is_correct) -> None:
    """Register `<name>_loss` and `<name>_bwd` over n elements, `rows` of them a sample."""

    @kernel(
        f"{name}_loss",
        "x:r:S[n] t:r:f32[n] partials:w:f64[192] ctl:r:i64[64] n rows",
        check="rows >= 1",
    )
    def loss(S):
        ld, ld32 = S.ld, FP32.ld

        def run(thread, nthreads, x, t, partials, ctl, n, rows):
            valid = min(n, ld_i64(ctl, COUNT) * rows)
            last = div(CHUNKS * (thread + 1), nthreads)
            for chunk in range(div(CHUNKS * thread, nthreads), last):
                total = counted = correct = 0.0
                for i in range(div(n * chunk, CHUNKS), min(div(n * (chunk + 1), CHUNKS), valid)):
                    a, b = ld(x, i), ld32(t, i)
                    total += np.float64(value(a, b))
                    counted += 1.0
                    correct += 1.0 if is_correct(a, b) else 0.0
                put_chunk(partials, chunk, total, counted, correct)

        return run

    @kernel(
        f"{name}_bwd",
        "x:r:S[n] t:r:f32[n] dx:m:S[n] ctl:r:i64[64] n rows acc",
        check="rows >= 1",
    )
    def backward(S):
        ld, st, ld32 = S.ld, S.st, FP32.ld

        def run(thread, nthreads, x, t, dx, ctl, n, rows, acc):
            valid = min(n, ld_i64(ctl, COUNT) * rows)
            scale = gradient_scale(ctl)
            for i in range(div(n * thread, nthreads), div(n * (thread + 1), nthreads)):
                d = scale * slope(ld(x, i), ld32(t, i)) if i < valid else ZERO
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


_elementwise("mse", "Squared difference", _square, _square_slope, _never)
_elementwise("l1", "Absolute difference", _absolute, _absolute_slope, _never)
_elementwise(
    "bce", "Binary cross-entropy with logits", _binary, _binary_slope, _same_side
)  # correct: the logit's sign tells t > 1/2


@kernel("loss_total", "partials:r:f64[192] ctl:m:i64[64]")
def loss_total():
    """Add a loss's partials, in order, to LOSS_SUM, TARGETS and CORRECT. Thread 0 does it."""

    def run(thread, nthreads, partials, ctl):
        if thread == 0:
            total = counted = correct = 0.0
            for chunk in range(CHUNKS):
                total += ld_f64(partials, 3 * chunk)
                counted += ld_f64(partials, 3 * chunk + 1)
                correct += ld_f64(partials, 3 * chunk + 2)
            st_f64(ctl, LOSS_SUM, ld_f64(ctl, LOSS_SUM) + total)
            st_i64(ctl, TARGETS, ld_i64(ctl, TARGETS) + real_to_int(counted))
            st_i64(ctl, CORRECT, ld_i64(ctl, CORRECT) + real_to_int(correct))

    return run


@kernel("counters_reset", "ctl:m:i64[64]")
def counters_reset():
    """LOSS_SUM, TARGETS and CORRECT to 0. Thread 0 does it."""

    def run(thread, nthreads, ctl):
        if thread == 0:
            st_f64(ctl, LOSS_SUM, 0.0)
            st_i64(ctl, TARGETS, 0)
            st_i64(ctl, CORRECT, 0)

    return run
