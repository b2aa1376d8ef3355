"""Float64 sums along a row on vectors of 16: those of normrow.py, to the bit.

Element i adds to lane i modulo 64, and lanes are combined by halves. A quarter of the lanes goes
over the whole row at a time, so that its sums stay in registers. Lanes behind a row's end add 0,
which changes no sum: one that begins with 0 never becomes -0.
"""

import numpy as np
from llvmlite import ir
from numba import types

from .inlining import inline
from .lanes import real
from .number import F64, Vector, fma
from .prim import FP32
from .quad import FOUR, first, second
from .vector import V16, WIDTH, define, loads, loads_first, shuffle, vkeep, vsplat

LANES = 64
WIDE = ir.VectorType(F64, WIDTH)


D16 = Vector(types.float64, WIDTH)


def _eight(builder, quarters):
    """Lanes j and j + 32, then j + 16, then j + 8, added."""
    a, b, c, d = quarters
    value = builder.fadd(builder.fadd(a, c), builder.fadd(b, d))
    low, high = (shuffle(builder, value, value, range(at, at + 8)) for at in (0, 8))
    return builder.fadd(low, high)


def _fold(builder, args):
    """Both sums in one vector as long as it can be: lanes j and j + 4, j + 2, j + 1 of each."""
    a, b = _eight(builder, args[:4]), _eight(builder, args[4:])
    value = shuffle(builder, a, b, range(16))
    for half in (4, 2, 1):
        lanes = [lane for lane in range(value.type.count) if lane % (2 * half) < half]
        low = shuffle(builder, value, value, lanes)
        value = builder.fadd(low, shuffle(builder, value, value, [at + half for at in lanes]))
    return shuffle(builder, value, value, [0, 1, 0, 1])


none = define(D16(), lambda b, args: ir.Constant(WIDE, [0.0] * WIDTH))
wide = define(D16(V16), lambda b, args: b.fpext(args[0], WIDE))
# four quarters of the lanes of two sums -> both: j with j + 32, j + 16, ...
fold = define(FOUR(*[D16] * 8), _fold)


def moments(S, centre):
    """of_row(k, at, n) -> (sum, or 0.0 where not `centre`; sum of squares) of n elements of k.x."""
    vld, vld_first = loads(S), loads_first(S)

    @inline
    def add(value, total, squares):
        v = wide(value)
        return total + v if centre else total, fma(v, v, squares)

    @inline
    def quarter(k, at, n, lane):
        total, squares, i, whole = none(), none(), lane, n & -LANES
        while i < whole:
            total, squares = add(vld(k.x, at + i), total, squares)
            i += LANES
        if i < n:
            total, squares = add(vld_first(k.x, at + i, n - i), total, squares)
        return total, squares

    @inline
    def of_row(k, at, n):
        t0, s0 = quarter(k, at, n, 0)
        t1, s1 = quarter(k, at, n, WIDTH)
        t2, s2 = quarter(k, at, n, 2 * WIDTH)
        t3, s3 = quarter(k, at, n, 3 * WIDTH)
        both = fold(t0, t1, t2, t3, s0, s1, s2, s3)
        return first(both), second(both)

    return of_row


def slopes(S):
    """of_row(k, rows, at, channel, mean, inverse) -> sums of dz and of dz * xhat of a row of
    elements that have a gamma each, the first that of `channel`."""
    vld, vld_first, vld32, vld32_first = loads(S), loads_first(S), loads(FP32), loads_first(FP32)

    @inline
    def quarter(k, at, channel, n, lane, mean, inverse, one):
        total, along, i, whole = none(), none(), lane, n & -LANES
        while i < whole:
            dz = vld(k.dy, at + i) * vld32(k.gamma, channel + i)
            product = dz * ((vld(k.x, at + i) - mean) * inverse)
            total, along = fma(wide(dz), one, total), fma(wide(product), one, along)
            i += LANES
        if i < n:
            m = n - i
            dz = vld_first(k.dy, at + i, m) * vld32_first(k.gamma, channel + i, m)
            product = dz * ((vld_first(k.x, at + i, m) - mean) * inverse)
            total, along = fma(wide(dz), one, total), fma(wide(vkeep(product, 0, m)), one, along)
        return total, along

    @inline
    def of_row(k, rows, at, channel, mean, inverse):
        n, m, r = rows.c, vsplat(mean), vsplat(inverse)
        # fused multiply-adds share no unit with conversions, additions do; a 1 that is known would
        # make them additions again
        one = wide(vsplat(np.float32(real(min(n, 1)))))
        a0, b0 = quarter(k, at, channel, n, 0, m, r, one)
        a1, b1 = quarter(k, at, channel, n, WIDTH, m, r, one)
        a2, b2 = quarter(k, at, channel, n, 2 * WIDTH, m, r, one)
        a3, b3 = quarter(k, at, channel, n, 3 * WIDTH, m, r, one)
        both = fold(a0, a1, a2, a3, b0, b1, b2, b3)
        return first(both), second(both)

    return of_row
