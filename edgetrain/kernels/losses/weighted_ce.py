"""Cross-entropy with a weight for each class: a mean over the targets, weighted by class."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO, exp, log
from ..language.prim import FP32, div, ld_i32, ld_i64, mod, to_float
from ..registry import kernel
from .sums import CHUNKS, COUNT, gradient_scale, put_weighted

_weight = FP32.ld


@inline
def class_of(t, k, n, ignore):
    """Class of position k; -1 if its target does not count."""
    target = ld_i32(t, k)
    return target if target != ignore and target >= 0 and target < n else -1


@inline
def sample_weight(sw, sample):
    """Weight of a sample; 1 without sample weights."""
    return _weight(sw, sample) if sw != 0 else ONE


def _row(S):
    """Inline (x, base, n, inner) -> the largest of n logits, the sum of exponentials relative to
    it, its first index."""
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
    """Like ce_loss, with class weights cw [n]; smoothing weighs each class by its own weight.

    sw [samples], if given: sample weights of at least 0, the same for all targets of a sample; a
    target of weight 0 does not count. partials: for each chunk losses, targets, correct ones,
    weights of the targets.
    """
    ld, survey = S.ld, _row(S)

    @inline
    def position_loss(x, cw, base, n, inner, target, top, total, smoothing):
        logsum = log(total)
        kept = _weight(cw, target) * (logsum - (ld(x, base + target * inner) - top))
        if smoothing == ZERO:
            return np.float64(kept)
        every = 0.0
        for j in range(n):
            every += np.float64(_weight(cw, j) * (logsum - (ld(x, base + j * inner) - top)))
        return np.float64(kept * (ONE - smoothing)) + np.float64(smoothing / to_float(n)) * every

    def run(thread, nthreads, args):
        valid = min(args.outer, ld_i64(args.ctl, COUNT) * args.rows) * args.inner
        count = args.outer * args.inner
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            losses = counted = correct = weights = 0.0
            for i in range(
                div(count * chunk, CHUNKS), min(div(count * (chunk + 1), CHUNKS), valid)
            ):
                target = class_of(args.t, i, args.n, args.ignore)
                weight = sample_weight(args.sw, div(i, args.inner * args.rows))
                if target >= 0 and weight != ZERO:
                    base = div(i, args.inner) * args.n * args.inner + mod(i, args.inner)
                    top, total, place = survey(args.x, base, args.n, args.inner)
                    losses += np.float64(weight) * position_loss(
                        args.x,
                        args.cw,
                        base,
                        args.n,
                        args.inner,
                        target,
                        top,
                        total,
                        args.smoothing,
                    )
                    counted += 1.0
                    weights += np.float64(weight) * np.float64(_weight(args.cw, target))
                    correct += 1.0 if place == target else 0.0
            put_weighted(args.partials, chunk, losses, counted, correct, weights)

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

    def run(thread, nthreads, args):
        valid = min(args.outer, ld_i64(args.ctl, COUNT) * args.rows) * args.inner
        count = args.outer * args.inner
        scale, share = gradient_scale(args.ctl), args.smoothing / to_float(args.n)
        every = ZERO
        for j in range(args.n):
            every += _weight(args.cw, j)
        for i in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
            base = div(i, args.inner) * args.n * args.inner + mod(i, args.inner)
            target = class_of(args.t, i, args.n, args.ignore) if i < valid else -1
            weight = sample_weight(args.sw, div(i, args.inner * args.rows))
            live = target >= 0 and weight != ZERO
            top, total, _ = survey(args.x, base, args.n, args.inner)
            kept = _weight(args.cw, max(target, 0)) * (ONE - args.smoothing)
            mass = (kept + share * every) / total
            for j in range(args.n):
                offset = base + j * args.inner
                d = exp(ld(args.x, offset) - top) * mass - share * _weight(args.cw, j)
                d = d - kept if j == target else d
                d = d * (weight * scale) if live else ZERO
                st(args.dx, offset, d + ld(args.dx, offset) if args.acc != 0 else d)

    return run
