"""Cross-entropy with a weight on each class: the mean is over the targets by their weights."""

import numpy as np

from .. import control
from ..jit import inline
from ..loss import gradient_scale
from ..registry import kernel
from ..words.mathf import exp, log
from ..words.prim import (
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

ZERO, ONE = np.float32(0), np.float32(1)
CHUNKS, COUNT, WEIGHT = control.PARTIALS, control.COUNT, control.WEIGHT
LOSS_SUM, TARGETS, CORRECT = control.LOSS_SUM, control.TARGETS, control.CORRECT
_weight = FP32.ld


@inline
def class_of(t, k, n, ignore):
    """Of position k; -1 where its target does not count."""
    target = ld_i32(t, k)
    return target if target != ignore and target >= 0 and target < n else -1


@inline
def sample_weight(sw, sample):
    """Of a sample; 1 where none have any."""
    return _weight(sw, sample) if sw != 0 else ONE


def _row(S):
    """Inline: the largest of n logits, the sum of their exponentials above it, its first place."""
    ld = S.ld

    @inline
    def survey(x, base, n, inner):
        top, place = ld(x, base), 0
        for j in range(1, n):
            value = ld(x, base + j * inner)
            if value > top or value != value:
                top, place = value, j
        total = 0.0
        for j in range(n):
            total += np.float64(exp(ld(x, base + j * inner) - top))
        return top, np.float32(total), place

    return survey


@kernel(
    "wce_loss",
    "x:r:S[outer*n*inner] t:r:i32[outer*inner] cw:r:f32[n] "
    "sw?:r:f32[outer//rows] partials:w:f64[256] ctl:r:i64[64] outer n inner rows "
    "smoothing:f ignore",
    check="min(outer, n, inner, rows) >= 1",
)
def wce_loss(S):
    """As ce_loss, with weights cw [n] of the classes; smoothing weighs each class by its own.

    sw [samples], where given: weights of at least 0 of the samples, of all their targets alike; a
    target of weight 0 does not count. partials: for each chunk losses, targets, correct ones,
    weights of the targets.
    """
    ld, survey = S.ld, _row(S)

    @inline
    def position_loss(x, cw, base, n, inner, target, top, total, smoothing):
        logsum = log(total)
        own = _weight(cw, target) * (logsum - (ld(x, base + target * inner) - top))
        if smoothing == ZERO:
            return np.float64(own)
        every = 0.0
        for j in range(n):
            every += np.float64(_weight(cw, j) * (logsum - (ld(x, base + j * inner) - top)))
        return np.float64(own * (ONE - smoothing)) + np.float64(smoothing / to_float(n)) * every

    def run(
        thread, nthreads, x, t, cw, sw, partials, ctl, outer, n, inner, rows, smoothing, ignore
    ):
        valid, count = min(outer, ld_i64(ctl, COUNT) * rows) * inner, outer * inner
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            losses = counted = correct = weights = 0.0
            for k in range(
                div(count * chunk, CHUNKS), min(div(count * (chunk + 1), CHUNKS), valid)
            ):
                target = class_of(t, k, n, ignore)
                weight = sample_weight(sw, div(k, inner * rows))
                if target >= 0 and weight != ZERO:
                    base = div(k, inner) * n * inner + mod(k, inner)
                    top, total, place = survey(x, base, n, inner)
                    loss = position_loss(x, cw, base, n, inner, target, top, total, smoothing)
                    losses += np.float64(weight) * loss
                    counted += 1.0
                    weights += np.float64(weight) * np.float64(_weight(cw, target))
                    correct += 1.0 if place == target else 0.0
            st_f64(partials, 4 * chunk, losses)
            st_f64(partials, 4 * chunk + 1, counted)
            st_f64(partials, 4 * chunk + 2, correct)
            st_f64(partials, 4 * chunk + 3, weights)

    return run


@kernel(
    "wce_bwd",
    "x:r:S[outer*n*inner] t:r:i32[outer*inner] cw:r:f32[n] "
    "sw?:r:f32[outer//rows] dx:m:S[outer*n*inner] ctl:r:i64[64] outer n inner rows "
    "smoothing:f ignore acc",
    check="min(outer, n, inner, rows) >= 1",
)
def wce_bwd(S):
    """Gradient of wce_loss times LOSS_SCALE / NOMINAL; 0 where masked or ignored.

    acc 1: added to dx, else dx is overwritten; dx may be x.
    """
    ld, st, survey = S.ld, S.st, _row(S)

    def run(thread, nthreads, x, t, cw, sw, dx, ctl, outer, n, inner, rows, smoothing, ignore, acc):
        valid, count = min(outer, ld_i64(ctl, COUNT) * rows) * inner, outer * inner
        scale, share = gradient_scale(ctl), smoothing / to_float(n)
        every = ZERO
        for j in range(n):
            every += _weight(cw, j)
        for k in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
            base = div(k, inner) * n * inner + mod(k, inner)
            target = class_of(t, k, n, ignore) if k < valid else -1
            weight = sample_weight(sw, div(k, inner * rows))
            live = target >= 0 and weight != ZERO
            top, total, _ = survey(x, base, n, inner)
            own = _weight(cw, max(target, 0)) * (ONE - smoothing)
            mass = (own + share * every) / total
            for j in range(n):
                at = base + j * inner
                d = exp(ld(x, at) - top) * mass - share * _weight(cw, j)
                d = d - own if j == target else d
                d = d * (weight * scale) if live else ZERO
                st(dx, at, d + ld(dx, at) if acc != 0 else d)

    return run


@kernel("weighted_total", "partials:r:f64[256] ctl:m:i64[64]")
def weighted_total():
    """As loss_total, of four sums a chunk: the last one is added to WEIGHT."""

    def run(thread, nthreads, partials, ctl):
        if thread == 0:
            total = counted = correct = weights = 0.0
            for chunk in range(CHUNKS):
                total += ld_f64(partials, 4 * chunk)
                counted += ld_f64(partials, 4 * chunk + 1)
                correct += ld_f64(partials, 4 * chunk + 2)
                weights += ld_f64(partials, 4 * chunk + 3)
            st_f64(ctl, LOSS_SUM, ld_f64(ctl, LOSS_SUM) + total)
            st_i64(ctl, TARGETS, ld_i64(ctl, TARGETS) + real_to_int(counted))
            st_i64(ctl, CORRECT, ld_i64(ctl, CORRECT) + real_to_int(correct))
            st_f64(ctl, WEIGHT, ld_f64(ctl, WEIGHT) + weights)

    return run
