"""Sums along rows and maps (rows.py): scalars and vectors have the same order and the same bits.

Element i adds to partial sum i modulo 16, in float32; the 16 of every block of 1024 elements are
added by halves in float64 (`vsum`), and so are the blocks, one after the other. Vectors process
four rows together: their additions fill registers, and no sum waits for another.
"""

from typing import NamedTuple

from .batch_sums import LANES, partial_sums
from .rows import BLOCK


class Four(NamedTuple):
    """The first elements of four rows, and the number subtracted from each row."""

    o0: int
    o1: int
    o2: int
    o3: int
    m0: float
    m1: float
    m2: float
    m3: float


def row_sums(S):
    """Inline scalar functions: the sum of a row, and of its squared differences.

    (args, first element, elements, middle) -> float64; the sum has no middle.
    """
    from ..language.block import get, memory, put
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.number import fma

    ld, new, (clear, total) = S.ld, memory(LANES), partial_sums()

    def over(add):
        @inline
        def summed(args, offset, n, middle):
            sums, result = new(), 0.0
            for start in range(0, n, BLOCK):
                clear(sums)
                for i in range(start, min(start + BLOCK, n)):
                    j = i & (LANES - 1)
                    put(sums, j, add(ld(args.x, offset + i), middle, get(sums, j)))
                result += total(sums)
            return result

        return summed

    @inline
    def value(v, middle, t):
        return t + v

    @inline
    def square(v, middle, t):
        return fma(v - middle, v - middle, t)

    values, squares = over(value), over(square)

    @inline
    def whole(args, offset, n):
        return values(args, offset, n, ZERO)

    return whole, squares


def slope_sums(S, scaled):
    """Inline scalar function (args, first element, channel, elements, mean) -> float64 sums of dz
    and of dz * (x - mean); dz is dy, times the element's own gamma if `scaled`."""
    from ..language.block import get, memory, put
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.prim import FP32

    ld, ldf, new, (clear, total) = S.ld, FP32.ld, memory(LANES), partial_sums()

    @inline
    def slopes(args, offset, channel, n, mean):
        sums, centred, first, second = new(), new(), 0.0, 0.0
        for start in range(0, n, BLOCK):
            clear(sums)
            clear(centred)
            for i in range(start, min(start + BLOCK, n)):
                j, dz = i & (LANES - 1), ld(args.dy, offset + i)
                if scaled:
                    dz = dz * ldf(args.gamma, channel + i)
                put(sums, j, get(sums, j) + dz)
                put(centred, j, fma(dz, ld(args.x, offset + i) - mean, get(centred, j)))
            first += total(sums)
            second += total(centred)
        return first, second

    return slopes


def four_sums(S):
    """Like `row_sums`, with vectors, each as two inline functions: (args, four, elements) -> four
    float64 sums of a `Four`, and (args, first element, elements, middle) -> float64 sum of one long
    row, four blocks together."""
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.quad import first, fourth, none, quad_sums, second, third
    from ..language.vector import WIDTH, loads, loads_first, vkeep, vsplat

    vld, vld_first = loads(S), loads_first(S)

    def over(add, add_first):
        @inline
        def block(args, lines, start, n):
            t0 = t1 = t2 = t3 = vsplat(ZERO)
            m0, m1, m2, m3 = vsplat(lines.m0), vsplat(lines.m1), vsplat(lines.m2), vsplat(lines.m3)
            i, full_end = start, start + (n & -WIDTH)
            while i < full_end:
                t0, t1 = add(args, lines.o0 + i, m0, t0), add(args, lines.o1 + i, m1, t1)
                t2, t3 = add(args, lines.o2 + i, m2, t2), add(args, lines.o3 + i, m3, t3)
                i += WIDTH
            m = start + n - i
            if m > 0:
                t0 = add_first(args, lines.o0 + i, m, m0, t0)
                t1 = add_first(args, lines.o1 + i, m, m1, t1)
                t2 = add_first(args, lines.o2 + i, m, m2, t2)
                t3 = add_first(args, lines.o3 + i, m, m3, t3)
            return quad_sums(t0, t1, t2, t3)

        @inline
        def four(args, lines, n):
            total = none()
            for start in range(0, n, BLOCK):
                total = total + block(args, lines, start, min(BLOCK, n - start))
            return total

        @inline
        def one(args, o, n, middle):
            total, start = 0.0, 0
            while start < n:
                more = BLOCK if n - start >= 4 * BLOCK else 0  # step between four blocks
                lines = Four(
                    o, o + more, o + 2 * more, o + 3 * more, middle, middle, middle, middle
                )
                sums = block(args, lines, start, min(BLOCK, n - start))
                total = total + first(sums)
                if more > 0:
                    total = total + second(sums) + third(sums) + fourth(sums)
                start += BLOCK + 3 * more
            return total

        return four, one

    @inline
    def value(args, i, middle, t):
        return t + vld(args.x, i)

    @inline
    def first_values(args, i, m, middle, t):
        return t + vld_first(args.x, i, m)

    @inline
    def square(args, i, middle, t):
        d = vld(args.x, i) - middle
        return fma(d, d, t)

    @inline
    def first_squares(args, i, m, middle, t):
        d = vkeep(vld_first(args.x, i, m) - middle, 0, m)
        return fma(d, d, t)

    return over(value, first_values), over(square, first_squares)


def four_slopes(S):
    """Like `slope_sums` for elements with a gamma each, with vectors: inline (args, four, channel,
    elements) -> two times four float64; the rows of `Four` begin with the same channel."""
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.prim import FP32
    from ..language.quad import none, quad_sums
    from ..language.vector import WIDTH, loads, loads_first, vsplat

    vld, vld_first, vld32, vld32_first = loads(S), loads_first(S), loads(FP32), loads_first(FP32)

    @inline
    def add(args, i, scale, middle, t, q):
        dz = vld(args.dy, i) * scale
        return t + dz, fma(dz, vld(args.x, i) - middle, q)

    @inline
    def add_first(args, i, m, scale, middle, t, q):
        dz = vld_first(args.dy, i, m) * scale
        return t + dz, fma(dz, vld_first(args.x, i, m) - middle, q)

    @inline
    def block(args, lines, channel, start, n):
        t0 = t1 = t2 = t3 = q0 = q1 = q2 = q3 = vsplat(ZERO)
        m0, m1, m2, m3 = vsplat(lines.m0), vsplat(lines.m1), vsplat(lines.m2), vsplat(lines.m3)
        i, full_end = start, start + (n & -WIDTH)
        while i < full_end:
            scale = vld32(args.gamma, channel + i)
            t0, q0 = add(args, lines.o0 + i, scale, m0, t0, q0)
            t1, q1 = add(args, lines.o1 + i, scale, m1, t1, q1)
            t2, q2 = add(args, lines.o2 + i, scale, m2, t2, q2)
            t3, q3 = add(args, lines.o3 + i, scale, m3, t3, q3)
            i += WIDTH
        m = start + n - i
        if m > 0:
            scale = vld32_first(args.gamma, channel + i, m)
            t0, q0 = add_first(args, lines.o0 + i, m, scale, m0, t0, q0)
            t1, q1 = add_first(args, lines.o1 + i, m, scale, m1, t1, q1)
            t2, q2 = add_first(args, lines.o2 + i, m, scale, m2, t2, q2)
            t3, q3 = add_first(args, lines.o3 + i, m, scale, m3, t3, q3)
        return quad_sums(t0, t1, t2, t3), quad_sums(q0, q1, q2, q3)

    @inline
    def four(args, lines, channel, n):
        total, centred = none(), none()
        for start in range(0, n, BLOCK):
            t, q = block(args, lines, channel, start, min(BLOCK, n - start))
            total, centred = total + t, centred + q
        return total, centred

    return four


def pair_slopes(S, vectors):
    """Inline (args, o0, o1, elements, m0, m1) -> float64 sums of dy and of dy * (x - mean) of the
    maps that begin at o0 and o1. If both are the same map, the sums of the second are
    meaningless."""
    from ..language.fused_activation import ZERO
    from ..language.inlining import inline
    from ..language.number import fma
    from ..language.quad import first, fourth, none, quad_sums, second, third
    from ..language.vector import WIDTH, loads, loads_first, vsplat

    slopes = slope_sums(S, False)

    @inline
    def pair(args, o0, o1, n, m0, m1):
        t, q = slopes(args, o0, 0, n, m0)
        if o1 == o0:
            return t, q, t, q
        other, centred = slopes(args, o1, 0, n, m1)
        return t, q, other, centred

    if not vectors:
        return pair
    vld, vld_first = loads(S), loads_first(S)

    @inline
    def add(args, i, middle, t, q):
        dz = vld(args.dy, i)
        return t + dz, fma(dz, vld(args.x, i) - middle, q)

    @inline
    def add_first(args, i, m, middle, t, q):
        dz = vld_first(args.dy, i, m)
        return t + dz, fma(dz, vld_first(args.x, i, m) - middle, q)

    @inline
    def block(args, o0, o1, n, m0, m1):
        t0 = t1 = q0 = q1 = vsplat(ZERO)
        i, full_end = 0, n & -WIDTH
        while i < full_end:
            t0, q0 = add(args, o0 + i, m0, t0, q0)
            t1, q1 = add(args, o1 + i, m1, t1, q1)
            i += WIDTH
        if i < n:
            t0, q0 = add_first(args, o0 + i, n - i, m0, t0, q0)
            t1, q1 = add_first(args, o1 + i, n - i, m1, t1, q1)
        return quad_sums(t0, q0, t1, q1)

    @inline
    def vector_pair(args, o0, o1, n, m0, m1):
        total, middle, other = none(), vsplat(m0), vsplat(m1)
        for start in range(0, n, BLOCK):
            count = min(BLOCK, n - start)
            total = total + block(args, o0 + start, o1 + start, count, middle, other)
        return first(total), second(total), third(total), fourth(total)

    return vector_pair
