"""Float64 sums along a row on vectors of 16: those of normrow.py, to the bit.

Element i adds to lane i modulo 64, and lanes are combined by halves. A quarter of the lanes goes
over the whole row at a time, so that its sums stay in registers. Lanes behind a row's end add 0,
which changes no sum: one that begins with 0 never becomes -0.
"""

import numpy as np

from .inlining import inline
from .number import fma, lanes_of, shuffled, to
from .prim import FP32, to_real
from .quad import first, second
from .vector import WIDTH, loads, loads_first, vkeep, vsplat

LANES = 64
wide, none = to("float64"), lanes_of("float64", WIDTH, (0.0,) * WIDTH)
_low, _high = shuffled(tuple(range(8))), shuffled(tuple(range(8, 16)))
_both, _first_two = shuffled(tuple(range(16))), shuffled((0, 1, 0, 1))


def _halves(count: int, half: int):
    """Inline (value): of every run of 2 * half of `count` lanes the halves, added."""
    low = tuple(k for k in range(count) if k % (2 * half) < half)
    lower, upper = shuffled(low), shuffled(tuple(k + half for k in low))

    @inline
    def added(value):
        return lower(value, value) + upper(value, value)

    return added


_by_four, _by_two, _by_one = _halves(16, 4), _halves(8, 2), _halves(4, 1)


@inline
def _eight(a, b, c, d):
    """Lanes j and j + 32, then j + 16, then j + 8, added."""
    value = (a + c) + (b + d)
    return _low(value, value) + _high(value, value)


@inline
def fold(a0, a1, a2, a3, b0, b1, b2, b3):
    """Four quarters of the lanes of two sums -> both: j with j + 32, j + 16, ..."""
    value = _both(_eight(a0, a1, a2, a3), _eight(b0, b1, b2, b3))
    value = _by_one(_by_two(_by_four(value)))
    return _first_two(value, value)


def moments(S, centre):
    """of_row(k, offset, n) -> (sum, or 0.0 where not `centre`; sum of squares) of n elements of
    k.x."""
    vld, vld_first = loads(S), loads_first(S)

    @inline
    def add(value, total, squares):
        v = wide(value)
        return total + v if centre else total, fma(v, v, squares)

    @inline
    def quarter(k, offset, n, lane):
        total, squares, i, whole = none(), none(), lane, n & -LANES
        while i < whole:
            total, squares = add(vld(k.x, offset + i), total, squares)
            i += LANES
        if i < n:
            total, squares = add(vld_first(k.x, offset + i, n - i), total, squares)
        return total, squares

    @inline
    def of_row(k, offset, n):
        t0, s0 = quarter(k, offset, n, 0)
        t1, s1 = quarter(k, offset, n, WIDTH)
        t2, s2 = quarter(k, offset, n, 2 * WIDTH)
        t3, s3 = quarter(k, offset, n, 3 * WIDTH)
        both = fold(t0, t1, t2, t3, s0, s1, s2, s3)
        return first(both), second(both)

    return of_row


def slopes(S):
    """of_row(k, rows, offset, channel, mean, inverse) -> sums of dz and of dz * xhat of a row of
    elements that have a gamma each, the first that of `channel`."""
    vld, vld_first, vld32, vld32_first = loads(S), loads_first(S), loads(FP32), loads_first(FP32)

    @inline
    def quarter(k, offset, channel, n, lane, mean, inverse, one):
        total, along, i, whole = none(), none(), lane, n & -LANES
        while i < whole:
            dz = vld(k.dy, offset + i) * vld32(k.gamma, channel + i)
            product = dz * ((vld(k.x, offset + i) - mean) * inverse)
            total, along = fma(wide(dz), one, total), fma(wide(product), one, along)
            i += LANES
        if i < n:
            m = n - i
            dz = vld_first(k.dy, offset + i, m) * vld32_first(k.gamma, channel + i, m)
            product = dz * ((vld_first(k.x, offset + i, m) - mean) * inverse)
            total, along = fma(wide(dz), one, total), fma(wide(vkeep(product, 0, m)), one, along)
        return total, along

    @inline
    def of_row(k, rows, offset, channel, mean, inverse):
        n, m, r = rows.c, vsplat(mean), vsplat(inverse)
        # fused multiply-adds share no unit with conversions, additions do; a 1 that is known would
        # make them additions again
        one = wide(vsplat(np.float32(to_real(min(n, 1)))))
        a0, b0 = quarter(k, offset, channel, n, 0, m, r, one)
        a1, b1 = quarter(k, offset, channel, n, WIDTH, m, r, one)
        a2, b2 = quarter(k, offset, channel, n, 2 * WIDTH, m, r, one)
        a3, b3 = quarter(k, offset, channel, n, 3 * WIDTH, m, r, one)
        both = fold(a0, a1, a2, a3, b0, b1, b2, b3)
        return first(both), second(both)

    return of_row
