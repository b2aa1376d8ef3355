"""Cross-entropy with logits that arrive one slice of the classes at a time.

For each position five float64 are carried from slice to slice: the largest logit so far, the sum of
exponentials relative to it, the target's logit, the weighted sum of the logits (for smoothing), and
the first class with the largest logit. Within a slice, sums are those of language/logits.py; slices
are added in order, rescaled by the exponential of the difference of maxima. Each row is a position;
it belongs to sample (row // each) % batch, because the time axis may come before the batch.
"""

import numpy as np

from ..language.block import BLOCK, get, get_wide, larger, new, new_wide, put
from ..language.inlining import inline
from ..language.logits import item, surveyor
from ..language.mathf import ONE, ZERO, exp, log
from ..language.prim import FP32, div, ld_f64, ld_i32, ld_i64, mod, st_f64, to_float, to_real
from ..registry import kernel
from .sums import CHUNKS, COUNT, gradient_scale, put_chunk, put_weighted
from .weighted_ce import class_of, sample_weight

WORDS = 5  # float64 of a position
TOP, TOTAL, OWN, SUM, PLACE = range(WORDS)
BEST = 5  # classes with the largest logits that an evaluation keeps
_weight, _st32 = FP32.ld, FP32.st


@inline
def _class_weight(cw, j):
    return _weight(cw, j) if cw != 0 else ONE


@inline
def _begin(stat, offset):
    st_f64(stat, offset + TOP, -np.inf)
    for word in range(TOTAL, WORDS):
        st_f64(stat, offset + word, 0.0)


def _inserter(S):
    """Inline (x, base, n, start, classes, scores, offset): insert a row's best logits, in
    descending order; of equal ones, the class that comes first."""
    ld = S.ld

    @inline
    def insert(x, base, n, start, classes, scores, offset):
        last = offset + BEST - 1
        for j in range(n):
            value = ld(x, base + j)
            if value > _weight(scores, last):
                k = last
                while k > offset and value > _weight(scores, k - 1):
                    _st32(scores, k, _weight(scores, k - 1))
                    _st32(classes, k, _weight(classes, k - 1))
                    k -= 1
                _st32(scores, k, value)
                _st32(classes, k, to_float(start + j))

    return insert


@kernel(
    "ce_slice",
    "x:r:S[rows*n] t:r:i32[rows] cw?:r:f32[start+n] stat:m:f64[5*rows] best?:m:f32[5*rows] "
    "scores?:m:f32[5*rows] rows n start smoothing:f",
    check="min(rows, n) >= 1",
)
def ce_slice(S):
    """Add logits x [rows, n] of the classes from `start` on to stat [rows, 5].

    start 0 begins anew. cw: weights of the classes. best, scores [rows, 5]: if given, classes and
    logits of the largest. Threads split the rows.
    """
    ld, survey, insert = S.ld, surveyor(S), _inserter(S)

    @inline
    def first_place(x, base, n, top):
        for j in range(n):
            if ld(x, base + j) == top:
                return j
        return -1

    def run(thread, nthreads, args):
        wide, top, terms = new_wide(), new(), new()
        for row in range(
            div(args.rows * thread, nthreads), div(args.rows * (thread + 1), nthreads)
        ):
            offset = WORDS * row
            if args.start == 0:
                _begin(args.stat, offset)
            base, used, blocks, step, length = item(row, args.n, 1)
            survey(args.x, wide, top, terms, base, used, blocks, step, length)
            high, old = get(top, 0), np.float32(ld_f64(args.stat, offset + TOP))
            if high != -np.inf:  # else all exponentials are 0
                most = np.float32(larger(old, high))
                total = get_wide(wide, 0) * np.float64(exp(high - most))
                if old != -np.inf:
                    total += ld_f64(args.stat, offset + TOTAL) * np.float64(exp(old - most))
                if not high <= old:
                    place = first_place(args.x, base, args.n, high)
                    st_f64(args.stat, offset + PLACE, to_real(args.start + place))
                st_f64(args.stat, offset + TOP, np.float64(most))
                st_f64(args.stat, offset + TOTAL, total)
            local = ld_i32(args.t, row) - args.start
            if 0 <= local < args.n:
                st_f64(args.stat, offset + OWN, np.float64(ld(args.x, base + local)))
            if args.smoothing != ZERO:
                every = ld_f64(args.stat, offset + SUM)
                for j in range(args.n):
                    every += np.float64(
                        _class_weight(args.cw, args.start + j) * ld(args.x, base + j)
                    )
                st_f64(args.stat, offset + SUM, every)
            if args.best != 0 and args.scores != 0:
                for j in range(BEST if args.start == 0 else 0):
                    _st32(args.scores, BEST * row + j, np.float32(-np.inf))
                    _st32(args.best, BEST * row + j, -ONE)
                insert(args.x, base, args.n, args.start, args.best, args.scores, BEST * row)

    return run


@inline
def _all_weights(cw, n):
    if cw == 0:
        return to_real(n)
    every = 0.0
    for j in range(n):
        every += np.float64(_weight(cw, j))
    return every


@kernel(
    "ce_slices_loss",
    "t:r:i32[rows] stat:r:f64[5*rows] cw?:r:f32[n] sw?:r:f32[batch] "
    "partials:w:f64[192+64*weighted] ctl:r:i64[64] rows n batch each "
    "smoothing:f ignore=compared weighted=flag",
    check="min(rows, n, batch, each) >= 1",
)
def ce_slices_loss():
    """Losses of all positions from the stat [rows, 5] of the slices.

    partials: as in ce_loss, with `weighted` as in wce_loss.
    """

    @inline
    def position_loss(args, offset, target, every):
        top = ld_f64(args.stat, offset + TOP)
        logsum = np.float64(log(np.float32(ld_f64(args.stat, offset + TOTAL)))) + top
        weighted = np.float64(_class_weight(args.cw, target)) * (
            logsum - ld_f64(args.stat, offset + OWN)
        )
        if args.smoothing == ZERO:
            return weighted
        spread = every * logsum - ld_f64(args.stat, offset + SUM)
        smoothing = np.float64(args.smoothing)
        return weighted * (1.0 - smoothing) + smoothing / to_real(args.n) * spread

    def run(thread, nthreads, args):
        samples, every = ld_i64(args.ctl, COUNT), _all_weights(args.cw, args.n)
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            losses = counted = correct = weights = 0.0
            for row in range(div(args.rows * chunk, CHUNKS), div(args.rows * (chunk + 1), CHUNKS)):
                sample = mod(div(row, args.each), args.batch)
                target = class_of(args.t, row, args.n, args.ignore)
                weight = np.float64(sample_weight(args.sw, sample))
                if sample < samples and target >= 0 and weight != 0.0:
                    offset = WORDS * row
                    losses += weight * position_loss(args, offset, target, every)
                    counted += 1.0
                    weights += weight * np.float64(_class_weight(args.cw, target))
                    hit = ld_f64(args.stat, offset + PLACE) == to_real(target)
                    correct += 1.0 if hit else 0.0
            if args.weighted != 0:
                put_weighted(args.partials, chunk, losses, counted, correct, weights)
            else:
                put_chunk(args.partials, chunk, losses, counted, correct)

    return run


@kernel(
    "ce_slice_bwd",
    "x:m:S[rows*n] t:r:i32[rows] stat:r:f64[5*rows] cw?:r:f32[classes] sw?:r:f32[batch] "
    "ctl:r:i64[64] rows n start classes before=size batch each smoothing:f ignore=compared",
    check="min(rows, n, classes, batch, each) >= 1;start + n <= classes",
)
def ce_slice_bwd(S):
    """Logits x [rows, n] of a slice become the gradient of the loss times LOSS_SCALE / NOMINAL.

    stat: over all slices. before: positions before row 0. 0 where masked or ignored.
    """
    ld, st = S.ld, S.st

    @inline
    def gradients(args, base, top, mass, share, factor, out):
        for j0 in range(0, args.n, BLOCK):
            m = min(BLOCK, args.n - j0)
            for j in range(m):
                put(out, j, exp(ld(args.x, base + j0 + j) - top) * mass)
            for j in range(m if share != ZERO else 0):
                put(out, j, get(out, j) - share * _class_weight(args.cw, args.start + j0 + j))
            for j in range(m):
                st(args.x, base + j0 + j, get(out, j) * factor)

    def run(thread, nthreads, args):
        samples, scale, out = ld_i64(args.ctl, COUNT), gradient_scale(args.ctl), new()
        share = args.smoothing / to_float(args.classes)
        spread = share * np.float32(_all_weights(args.cw, args.classes))
        for row in range(
            div(args.rows * thread, nthreads), div(args.rows * (thread + 1), nthreads)
        ):
            base, target = row * args.n, class_of(args.t, row, args.classes, args.ignore)
            sample = mod(div(args.before + row, args.each), args.batch)
            weight = sample_weight(args.sw, sample)
            if sample >= samples or target < 0 or weight == ZERO:
                for j in range(args.n):
                    st(args.x, base + j, ZERO)
                continue
            top = np.float32(ld_f64(args.stat, WORDS * row + TOP))
            total = np.float32(ld_f64(args.stat, WORDS * row + TOTAL))
            kept = _class_weight(args.cw, target) * (ONE - args.smoothing)
            mass, factor, here = (kept + spread) / total, weight * scale, target - args.start
            hot = ZERO
            if 0 <= here < args.n:  # computed before x is overwritten
                hot = exp(ld(args.x, base + here) - top) * mass
                hot = (hot - share * _class_weight(args.cw, target) - kept) * factor
            gradients(args, base, top, mass, share, factor, out)
            if 0 <= here < args.n:
                st(args.x, base + here, hot)

    return run
