"""Cross-entropy of logits with class indices."""

import numpy as np

from ..language.block import get, get_wide, new, new_wide, put
from ..language.inlining import inline
from ..language.logits import item, items, surveyor, width
from ..language.mathf import ONE, ZERO, exp, log
from ..language.prim import div, ld_i32, ld_i64, mod, to_float
from ..registry import kernel
from .sums import CHUNKS, COUNT, gradient_scale, put_chunk


@inline
def _counts(target, n, ignore):
    return target != ignore and target >= 0 and target < n


@kernel(
    "ce_loss",
    "x:r:S[outer*n*inner] t:r:i32[outer*inner] partials:w:f64[192] ctl:r:i64[64] "
    "outer n inner rows smoothing:f ignore=compared",
    check="min(outer, n, inner, rows) >= 1",
)
def ce_loss(S):
    """Cross-entropy of logits x [outer, n, inner] with class indices t [outer, inner].

    A target equal to `ignore` or outside 0..n-1 does not count. The target's distribution is
    smoothing / n everywhere, plus 1 - smoothing on the class. Outer index // rows is the sample.
    partials: a position's loss in float32, sums in float64 in order of positions; the sum over
    classes as in language/logits.py. A prediction is the first of the largest logits.
    """
    ld, survey = S.ld, surveyor(S)

    @inline
    def position_loss(x, offset, n, inner, target, top, total, smoothing):
        logsum = log(np.float32(total))
        loss = (logsum - (ld(x, offset + target * inner) - top)) * (ONE - smoothing)
        if smoothing != ZERO:
            below = 0.0
            for j in range(n):
                below += np.float64(ld(x, offset + j * inner) - top)
            loss += smoothing * (logsum - np.float32(below) / to_float(n))
        return loss

    @inline
    def is_first(x, offset, inner, target, top):
        earlier = 0
        for j in range(target):
            earlier += 1 if ld(x, offset + j * inner) == top else 0
        return earlier == 0

    def run(thread, nthreads, args):
        samples = min(args.outer, ld_i64(args.ctl, COUNT) * args.rows)
        count = items(args.outer, args.inner)
        wide, top, terms = new_wide(), new(), new()
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            total = counted = correct = 0.0
            for i in range(div(count * chunk, CHUNKS), div(count * (chunk + 1), CHUNKS)):
                base, used, blocks, step, length = item(i, args.n, args.inner)
                row = div(base, args.n * args.inner)
                first = row * args.inner + mod(base, args.n * args.inner)
                if row >= samples or (
                    args.inner == 1 and not _counts(ld_i32(args.t, row), args.n, args.ignore)
                ):
                    continue
                survey(args.x, wide, top, terms, base, used, blocks, step, length)
                for q in range(1 if length >= 0 else used):
                    target = ld_i32(args.t, first + q)
                    if _counts(target, args.n, args.ignore):
                        best, offset = get(top, q), base + q
                        loss = position_loss(
                            args.x,
                            offset,
                            args.n,
                            args.inner,
                            target,
                            best,
                            get_wide(wide, q),
                            args.smoothing,
                        )
                        total += np.float64(loss)
                        counted += 1.0
                        if ld(args.x, offset + target * args.inner) == best:
                            correct += (
                                1.0 if is_first(args.x, offset, args.inner, target, best) else 0.0
                            )
            put_chunk(args.partials, chunk, total, counted, correct)

    return run


@kernel(
    "ce_bwd",
    "x:r:S[outer*n*inner] t:r:i32[outer*inner] dx:m:S[outer*n*inner] ctl:r:i64[64] "
    "outer n inner rows smoothing:f ignore=compared acc=flag",
    check="min(outer, n, inner, rows) >= 1",
)
def ce_bwd(S):
    """Gradient of ce_loss: (softmax - target distribution) * LOSS_SCALE / NOMINAL, in x's layout.

    0 where masked or ignored. acc 1: added to dx, else dx is overwritten; dx may be x.
    """
    ld, st, survey = S.ld, S.st, surveyor(S)

    def run(thread, nthreads, args):
        samples = min(args.outer, ld_i64(args.ctl, COUNT) * args.rows)
        scale, everywhere = gradient_scale(args.ctl), args.smoothing / to_float(args.n)
        wide, top, terms, share, live, hot = new_wide(), new(), new(), new(), new(), new()
        count = items(args.outer, args.inner)
        for i in range(div(count * thread, nthreads), div(count * (thread + 1), nthreads)):
            base, used, blocks, step, length = item(i, args.n, args.inner)
            row = div(base, args.n * args.inner)
            first = row * args.inner + mod(base, args.n * args.inner)
            positions = 1 if length >= 0 else used
            survey(args.x, wide, top, terms, base, used, blocks, step, length)
            for j in range(positions):
                target = ld_i32(args.t, first + j)
                valid = row < samples and _counts(target, args.n, args.ignore)
                put(live, j, ONE if valid else ZERO)
                put(share, j, ONE / np.float32(get_wide(wide, j)))
            for j in range(positions, used):  # the rest of a row
                put(live, j, get(live, 0))
                put(share, j, get(share, 0))
            # gradient of the target's class; x may be dx, so it is computed first
            for j in range(positions):
                if get(live, j) != ZERO:
                    q = base + j + ld_i32(args.t, first + j) * args.inner
                    value = exp(ld(args.x, q) - get(top, j)) * get(share, j) - everywhere
                    value = (value - (ONE - args.smoothing)) * scale
                    put(hot, j, value + ld(args.dx, q) if args.acc != 0 else value)
            for b in range(blocks):
                offset, m = base + b * step, width(b, used, length)
                if blocks > 1:
                    for j in range(m):
                        put(terms, j, exp(ld(args.x, offset + j) - get(top, j)))
                for j in range(m):
                    value = (get(terms, j) * get(share, j) - everywhere) * scale
                    put(terms, j, value if get(live, j) != ZERO else ZERO)
                for j in range(m):
                    value = get(terms, j)
                    st(
                        args.dx,
                        offset + j,
                        value + ld(args.dx, offset + j) if args.acc != 0 else value,
                    )
            for j in range(positions):
                if get(live, j) != ZERO:
                    st(args.dx, base + j + ld_i32(args.t, first + j) * args.inner, get(hot, j))

    return run
