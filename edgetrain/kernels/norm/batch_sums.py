"""Sums of batch normalisation on numbers: the bits of batch_fast.py."""

from ..registry import kernel
from .batch import BLOCK, CHECK, reduce_operands, stats_operands

LANES = 16


def partial_sums():
    """Inline functions of a buffer of 16 partial sums: all 0; one of them as it is, and stored;
    their float64 total, by halves as `vsum`."""
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
    def summed(k, ch, sums, mean, squares):
        out = 0.0
        for b in range(k.n):
            row = (b * k.c + ch) * k.s
            for start in range(0, k.s, BLOCK):
                clear(sums)
                for i in range(start, min(start + BLOCK, k.s)):
                    v, j = ld(k.x, row + i), i & (LANES - 1)
                    d = v - mean
                    put(sums, j, fma(d, d, get(sums, j)) if squares else get(sums, j) + v)
                out += total(sums)
        return out

    def run(thread, nthreads, k):
        sums, count = new(), real(k.n * k.s)
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            mean = summed(k, ch, sums, ZERO, False) / count
            variance = summed(k, ch, sums, single(mean), True) / count
            st(k.stat, ch, mean)
            st(k.stat, k.c + ch, inverse_root(variance, k.eps))
            st(k.stat, 2 * k.c + ch, variance)

    return run


@kernel("bn_reduce", reduce_operands, check=CHECK, revision="2")
def bn_reduce(S):
    """sums = (sum of dz, sum of dz * xhat), dz = dy * act'(z); dgamma, dbeta are added to.

    xhat = (x - mean) * invstd; invstd multiplies the sum.
    """
    from ..language.block import get, memory, put
    from ..language.fused_activation import act_slope, norm_line
    from ..language.number import fma
    from ..language.prim import FP32, div
    from .batch import sum_writer

    ld, ldf, new, keep = S.ld, FP32.ld, memory(LANES), sum_writer()
    clear, total = partial_sums()

    def run(thread, nthreads, k):
        sums, centred = new(), new()
        for ch in range(div(k.c * thread, nthreads), div(k.c * (thread + 1), nthreads)):
            (a, shift), mean = norm_line(k, ch), ldf(k.stat, ch)
            whole = along = 0.0
            for b in range(k.n):
                row = (b * k.c + ch) * k.s
                for start in range(0, k.s, BLOCK):
                    clear(sums)
                    clear(centred)
                    for i in range(start, min(start + BLOCK, k.s)):
                        v, j = ld(k.x, row + i), i & (LANES - 1)
                        d = ld(k.dy, row + i)
                        dz = d * act_slope(k.act, fma(v, a, shift), k.lo, k.hi)
                        put(sums, j, get(sums, j) + dz)
                        put(centred, j, fma(dz, v - mean, get(centred, j)))
                    whole += total(sums)
                    along += total(centred)
            keep(k, ch, whole, along)

    return run
