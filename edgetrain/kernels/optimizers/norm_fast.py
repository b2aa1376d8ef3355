"""The norm of gradients on processors with vectors, with the bits of the plain variant.

Eight chunks are summed at once: the four sums of a chunk are chains, so one alone waits for every
addition. The square of a float32 is exact in float64, so fma rounds as multiplying and adding do.
"""

import functools

from ..language.inlining import inline
from ..language.number import fma, to
from ..language.prim import Storage, div
from ..language.quad import first, fourth, none, second, third
from ..language.vector import loads
from ..registry import kernel, of_numbers
from .norm import CHUNKS, SUMSQ, finished

AT_ONCE = 8
_wide = to("float64")


@functools.cache
def _squares(G: Storage):
    """Inline (sums, address, index) -> sums + the squares of four elements from `index` on."""
    ld = loads(G, width=4)

    @inline
    def add(sums, address, index):
        value = _wide(ld(address, index))
        return fma(value, value, sums)

    return add


@kernel("grad_sumsq", SUMSQ, variant="wide", when=f"lanes > 1 and {of_numbers('G')}")
def grad_sumsq(G):
    """As the plain variant."""
    square, finish = _squares(G), finished(G)

    @inline
    def close(k, chunk, at, end, sums):
        s0, s1, s2, s3 = first(sums), second(sums), third(sums), fourth(sums)
        finish(k, chunk, at, end, s0, s1, s2, s3)

    @inline
    def rest(k, chunk, at, sums):
        """A chunk from element `at` of it on."""
        end = div(k.n * (chunk + 1), CHUNKS)
        while end - at >= 4:
            sums = square(sums, k.g, at)
            at += 4
        close(k, chunk, at, end, sums)

    @inline
    def begin(k, chunk):
        return div(k.n * chunk, CHUNKS)

    @inline
    def begins(k, chunk):
        return begin(k, chunk), begin(k, chunk + 1), begin(k, chunk + 2), begin(k, chunk + 3)

    def run(thread, nthreads, k):
        chunk, stop = div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)
        turns = div(div(k.n, CHUNKS), 4) * 4  # elements that every chunk has, in fours
        while stop - chunk >= AT_ONCE:
            i0, i1, i2, i3 = (
                begin(k, chunk),
                begin(k, chunk + 1),
                begin(k, chunk + 2),
                begin(k, chunk + 3),
            )
            i4, i5, i6, i7 = (
                begin(k, chunk + 4),
                begin(k, chunk + 5),
                begin(k, chunk + 6),
                begin(k, chunk + 7),
            )
            t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = none()
            for q in range(0, turns, 4):
                t0, t1 = square(t0, k.g, i0 + q), square(t1, k.g, i1 + q)
                t2, t3 = square(t2, k.g, i2 + q), square(t3, k.g, i3 + q)
                t4, t5 = square(t4, k.g, i4 + q), square(t5, k.g, i5 + q)
                t6, t7 = square(t6, k.g, i6 + q), square(t7, k.g, i7 + q)
            rest(k, chunk, i0 + turns, t0)
            rest(k, chunk + 1, i1 + turns, t1)
            rest(k, chunk + 2, i2 + turns, t2)
            rest(k, chunk + 3, i3 + turns, t3)
            rest(k, chunk + 4, i4 + turns, t4)
            rest(k, chunk + 5, i5 + turns, t5)
            rest(k, chunk + 6, i6 + turns, t6)
            rest(k, chunk + 7, i7 + turns, t7)
            chunk += AT_ONCE
        while chunk < stop:
            rest(k, chunk, begin(k, chunk), none())
            chunk += 1

    return run
