"""Cross-entropy with a weight on each class: the mean is over the targets by their weights."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO, exp, log
from ..language.prim import FP32, div, ld_i32, ld_i64, mod, to_float
from ..registry import kernel
from .sums import CHUNKS, COUNT, gradient_scale, put_weighted

_weight = FP32.ld


@inline
def class_of(t, k, n, ignore):
    """Of position k; -1 where its target does not count."""
    target = ld_i32(t, k)
    return target if target != ignore and target >= 0 and target < n else -1


@inline
def sample_weight(sw, sample):
    """Weight of a sample; 1 without sample weights."""
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
    "sw?:r:f32[(outer+rows-1)//rows] partials:w:f64[256] ctl:r:i64[64] outer n inner rows "
    "smoothing:f ignore=compared",
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

    def run(thread, nthreads, k):
        valid, count = min(k.outer, ld_i64(k.ctl, COUNT) * k.rows) * k.inner, k.outer * k.inner
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            losses = counted = correct = weights = 0.0
            for i in range(
                div(count * chunk, CHUNKS), min(div(count * (chunk + 1), CHUNKS), valid)
            ):
                target = class_of(k.t, i, k.n, k.ignore)
                weight = sample_weight(k.sw, div(i, k.inner * k.rows))
                if target >= 0 and weight != ZERO:
                    base = div(i, k.inner) * k.n * k.inner + mod(i, k.inner)
                    top, total, place = survey(k.x, base, k.n, k.inner)
                    losses += np.float64(weight) * position_loss(
                        k.x, k.cw, base, k.n, k.inner, target, top, total, k.smoothing
                    )
                    counted += 1.0
                    weights += np.float64(weight) * np.float64(_weight(k.cw, target))
                    correct += 1.0 if place == target else 0.0
            put_weighted(k.partials, chunk, losses, counted, correct, weights)

    return run


@kernel(
    "wce_bwd",
    "x:r:S[outer*n*inner] t:r:i32[outer*inner] cw:r:f32[n] "
    "sw?:r:f32[(outer+rows-1)//rows] dx:m:S[outer*n*inner] ctl:r:i64[64] outer n inner rows "
    "smoothing:f ignore=compared acc=flag",
    check="min(outer, n, inner, rows) >= 1",
)
def wce_bwd(S):
    """Gradient of wce_loss times LOSS_SCALE / NOMINAL; 0 where masked or ignored.

    acc 1: added to dx, else dx is overwritten; dx may be x.
    """
    ld, st, survey = S.ld, S.st, _row(S)

    def run(thread, nthreads, k):
        valid, count = min(k.outer, ld_i64(k.ctl, COUNT) * k.rows) * k.inner, k.outer * k.inner
        scale, share = gradient_scale(k.ctl), k.smoothing / to_float(k.n)
        every = ZERO
        for j in range(k.n):
            every += _weight(k.cw, j)
        for i in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
            base = div(i, k.inner) * k.n * k.inner + mod(i, k.inner)
            target = class_of(k.t, i, k.n, k.ignore) if i < valid else -1
            weight = sample_weight(k.sw, div(i, k.inner * k.rows))
            live = target >= 0 and weight != ZERO
            top, total, _ = survey(k.x, base, k.n, k.inner)
            own = _weight(k.cw, max(target, 0)) * (ONE - k.smoothing)
            mass = (own + share * every) / total
            for j in range(k.n):
                offset = base + j * k.inner
                d = exp(ld(k.x, offset) - top) * mass - share * _weight(k.cw, j)
                d = d - own if j == target else d
                d = d * (weight * scale) if live else ZERO
                st(k.dx, offset, d + ld(k.dx, offset) if k.acc != 0 else d)

    return run
