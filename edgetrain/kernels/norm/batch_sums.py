"""Sums of batch normalisation in scalar code, with the same bits as batch_fast.py."""

from ..registry import kernel
from .batch import BLOCK, CHECK, reduce_operands, stats_operands

LANES = 16


def partial_sums():
    """(clear, total): inline functions that zero a buffer of 16 partial sums, and return their
    float64 total, by halves like `vsum`."""
    import numpy as np

    from ..language.block import get, put
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline

    @inline
    def clear(sums):
        for j in range(LANES):
            put(sums, j, ZERO)

    @inline
    def eighth(sums, j):
        return np.float64(get(sums, j)) + np.float64(get(sums, j + 8))

    @inline
    def quarter(sums, j):
        return eighth(sums, j) + eighth(sums, j + 4)

    @inline
    def total(sums):
        even = quarter(sums, 0) + quarter(sums, 2)
        return even + (quarter(sums, 1) + quarter(sums, 3))

    return clear, total


@kernel("bn_stats", stats_operands, check=CHECK, revision="2")
def bn_stats(S):
    """Statistics of this microbatch: two passes, the second over squared differences."""
    import numpy as np

    from ..language.block import get, memory, put
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.prim import FP32, div
    from .batch import scalars

    ld, st, new, single = S.ld, FP32.st, memory(LANES), np.float32
    (clear, total), (real, inverse_root) = partial_sums(), scalars()

    @inline
    def summed(args, ch, sums, mean, squares):
        out = 0.0
        for b in range(args.n):
            row = (b * args.c + ch) * args.s
            for start in range(0, args.s, BLOCK):
                clear(sums)
                for i in range(start, min(start + BLOCK, args.s)):
                    v, j = ld(args.x, row + i), i & (LANES - 1)
                    d = v - mean
                    put(sums, j, fma(d, d, get(sums, j)) if squares else get(sums, j) + v)
                out += total(sums)
        return out

    def run(thread, nthreads, args):
        sums, count = new(), real(args.n * args.s)
        for ch in range(div(args.c * thread, nthreads), div(args.c * (thread + 1), nthreads)):
            mean = summed(args, ch, sums, ZERO, False) / count
            variance = summed(args, ch, sums, single(mean), True) / count
            st(args.stat, ch, mean)
            st(args.stat, args.c + ch, inverse_root(variance, args.eps))
            st(args.stat, 2 * args.c + ch, variance)

    return run


@kernel("bn_reduce", reduce_operands, check=CHECK, revision="2")
def bn_reduce(S):
    """sums = (sum of dz, sum of dz * xhat), dz = dy * act'(z); added to dbeta and dgamma too.

    xhat = (x - mean) * invstd; the sum is multiplied by invstd.
    """
    from ..language.block import get, memory, put
    from ..language.fused_activation import act_slope, norm_line
    from ..language.number import fma
    from ..language.prim import FP32, div
    from .batch import sum_writer

    ld, ldf, new, keep = S.ld, FP32.ld, memory(LANES), sum_writer()
    clear, total = partial_sums()

    def run(thread, nthreads, args):
        sums, centred = new(), new()
        for ch in range(div(args.c * thread, nthreads), div(args.c * (thread + 1), nthreads)):
            (a, shift), mean = norm_line(args, ch), ldf(args.stat, ch)
            summed = along = 0.0
            for b in range(args.n):
                row = (b * args.c + ch) * args.s
                for start in range(0, args.s, BLOCK):
                    clear(sums)
                    clear(centred)
                    for i in range(start, min(start + BLOCK, args.s)):
                        v, j = ld(args.x, row + i), i & (LANES - 1)
                        d = ld(args.dy, row + i)
                        dz = d * act_slope(args.act, fma(v, a, shift), args.lo, args.hi)
                        put(sums, j, get(sums, j) + dz)
                        put(centred, j, fma(dz, v - mean, get(centred, j)))
                    summed += total(sums)
                    along += total(centred)
            keep(args, ch, summed, along)

    return run
