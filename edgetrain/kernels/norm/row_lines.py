"""Forward and input gradient of layer, RMS and group normalisation (layer.py).

Elementwise work has one source for scalars and for vectors of 16; the sums (row_sums.py) have the
same bits. A thread processes one row after the other; with vectors it first sums four of them.
"""

from typing import Any, NamedTuple

from ..language.inlining import inline
from .row_sums import Four, four_slopes, four_sums, pair_slopes, row_sums, slope_sums
from .rows import (
    BLOCK,
    TOGETHER,
    UNCACHED,
    beta,
    fetcher,
    first_channel,
    no_shift,
    part,
)

FARTHEST = 16384  # most elements to prefetch ahead


class Line(NamedTuple):
    """dx = inverse * (dz - level + tilt * (x - mean)).

    `level`, the mean of dz, is subtracted from dz before anything is scaled: they may cancel.
    """

    mean: Any
    inverse: Any
    level: Any
    tilt: Any


@inline
def rows_ahead(n):
    """Elements from what is stored to what is prefetched: beyond the rows that are being summed."""
    return min(2 * TOGETHER * n, FARTHEST)


def _statistic(S):
    """Inline functions from float64, scalars or vectors, to float32: the mean of a sum, and the
    inverse deviation of a sum of squares; `share` is 1 / elements."""
    import numpy as np

    from ..language.mathf import sqrt
    from ..language.number import to

    single = to("float32")

    @inline
    def mean_of(total, share):
        return single(total * share)

    @inline
    def inverse_of(squares, share, eps):
        return single(1.0 / sqrt(squares * share + np.float64(eps)))

    return mean_of, inverse_of


def _statistics(S, centre):
    """Inline functions (args, rows, row, count, n): store the mean of a row of n elements; store
    the inverse of its deviation."""
    from ..language.fused_activation import ZERO
    from ..language.prim import FP32, to_real

    (row_sum, squares), (mean_of, inverse_of) = row_sums(S), _statistic(S)
    ld, st = FP32.ld, FP32.st

    @inline
    def means(args, rows, row, count, n):
        if centre:
            st(rows.means, row, mean_of(row_sum(args, row * n, n), 1.0 / to_real(n)))

    @inline
    def inverses(args, rows, row, count, n):
        mean = ZERO
        if centre:
            mean = ld(rows.means, row)
        total = squares(args, row * n, n, mean)
        st(rows.inverses, row, inverse_of(total, 1.0 / to_real(n), args.eps))

    return means, inverses


def _vector_statistics(S, centre):
    """Like `_statistics`, for `count` rows, 1 to 4, or for one if rows are long."""
    from ..language.fused_activation import ZERO
    from ..language.prim import FP32, to_real
    from ..language.quad import first, fourth, second, third

    (mean_of, inverse_of), sums, ld, st = _statistic(S), four_sums(S), FP32.ld, FP32.st
    (values, long_values), (squares, long_squares) = sums

    @inline
    def places(row, count):
        """Four rows; missing ones repeat the last row."""
        return row, row + min(1, count - 1), row + min(2, count - 1), row + count - 1

    @inline
    def keep(address, rows_of, numbers):
        st(address, rows_of[0], first(numbers))
        st(address, rows_of[1], second(numbers))
        st(address, rows_of[2], third(numbers))
        st(address, rows_of[3], fourth(numbers))

    @inline
    def four(rows_of, n, m0, m1, m2, m3):
        return Four(rows_of[0] * n, rows_of[1] * n, rows_of[2] * n, rows_of[3] * n, m0, m1, m2, m3)

    @inline
    def means(args, rows, row, count, n):
        if centre:
            share = 1.0 / to_real(n)
            if n > TOGETHER * BLOCK:
                st(rows.means, row, mean_of(long_values(args, row * n, n, ZERO), share))
            else:
                rows_of = places(row, count)
                total = values(args, four(rows_of, n, ZERO, ZERO, ZERO, ZERO), n)
                keep(rows.means, rows_of, mean_of(total, share))

    @inline
    def inverses(args, rows, row, count, n):
        share, rows_of = 1.0 / to_real(n), places(row, count)
        m0 = m1 = m2 = m3 = ZERO
        if centre:
            m0, m1 = ld(rows.means, rows_of[0]), ld(rows.means, rows_of[1])
            m2, m3 = ld(rows.means, rows_of[2]), ld(rows.means, rows_of[3])
        if n > TOGETHER * BLOCK:
            total = long_squares(args, row * n, n, m0)
            st(rows.inverses, row, inverse_of(total, share, args.eps))
        else:
            sums_of = squares(args, four(rows_of, n, m0, m1, m2, m3), n)
            keep(rows.inverses, rows_of, inverse_of(sums_of, share, args.eps))

    return means, inverses


def _stored_rows(S, centre, vectors):
    """Inline functions that store n elements of a row: with one scale and shift, or one each."""
    from ..language.elements import elements
    from ..language.fused_activation import ZERO
    from ..language.number import fma
    from ..language.prim import FP32

    width, load, load_first, store, spread = elements(S, vectors)
    _, load32, load32_first, _, _ = elements(FP32, vectors)
    fetch, shift_of = fetcher(S, vectors), beta if centre else no_shift

    @inline
    def line(args, base, n, mean, scale, shift):
        """Store n elements with one scale and shift."""
        full = n & -width
        for i in range(base, base + full, width):
            store(args.y, i, fma(load(args.x, i) - mean, scale, shift), width)
        if full < n:
            v = load_first(args.x, base + full, n - full)
            store(args.y, base + full, fma(v - mean, scale, shift), n - full)

    @inline
    def line_by_element(args, base, n, channel, mean, inverse, scaled, shifted, far):
        """Store n elements with a scale, a shift or both per element; `far` if no cache holds x."""
        full, scale, shift, address = n & -width, inverse, spread(ZERO), shift_of(args)
        ahead = base + rows_ahead(n)
        for i in range(0, full, width):
            fetch(args.x, ahead + i)
            if far:
                fetch(args.y, ahead + i)
            if scaled:
                scale = inverse * load32(args.gamma, channel + i)
            if shifted:
                shift = load32(address, channel + i)
            store(args.y, base + i, fma(load(args.x, base + i) - mean, scale, shift), width)
        if full < n:
            rest = n - full
            if scaled:
                scale = inverse * load32_first(args.gamma, channel + full, rest)
            if shifted:
                shift = load32_first(address, channel + full, rest)
            v = load_first(args.x, base + full, rest)
            store(args.y, base + full, fma(v - mean, scale, shift), rest)

    return line, line_by_element


def forward(S, centre, vectors):
    """body(thread, nthreads, args, rows): computes the statistics of rows, and y."""
    from ..language.elements import elements
    from ..language.fused_activation import ONE, ZERO
    from ..language.prim import FP32

    spread, ldf = elements(S, vectors).spread, FP32.ld
    shift_of = beta if centre else no_shift
    line, by_element = _stored_rows(S, centre, vectors)
    means, inverses = (_vector_statistics if vectors else _statistics)(S, centre)

    @inline
    def normalised(args, rows, row, n):
        mean, inverse, channel = ZERO, ldf(rows.inverses, row), first_channel(rows, row)
        if centre:
            mean = ldf(rows.means, row)
        base, m, r, shift = row * n, spread(mean), spread(inverse), shift_of(args)
        far = vectors and rows.total * n > UNCACHED
        if args.gamma == 0 and shift == 0:
            line(args, base, n, m, r, spread(ZERO))
        elif rows.s > 1:
            for c in range(rows.c):
                a = ldf(args.gamma, channel + c) if args.gamma != 0 else ONE
                b = ldf(shift, channel + c) if shift != 0 else ZERO
                line(args, base + c * rows.s, rows.s, m, spread(inverse * a), spread(b))
        elif far and args.gamma != 0 and shift != 0:
            by_element(args, base, n, channel, m, r, True, True, True)
        elif not centre and far and args.gamma != 0:
            by_element(args, base, n, channel, m, r, True, False, True)
        elif args.gamma != 0 and shift != 0:
            by_element(args, base, n, channel, m, r, True, True, False)
        elif args.gamma != 0:
            by_element(args, base, n, channel, m, r, True, False, False)
        else:
            by_element(args, base, n, channel, m, r, False, True, False)

    @inline
    def body(thread, nthreads, args, rows):
        (lo, hi), n = part(rows, thread, nthreads), rows.c * rows.s
        turn = TOGETHER if vectors and n <= TOGETHER * BLOCK else 1
        start = lo - turn
        while start < hi:  # the next rows are summed while the previous ones are stored
            following = start + turn
            if start >= lo:
                inverses(args, rows, start, min(turn, hi - start), n)
            if following < hi:
                means(args, rows, following, min(turn, hi - following), n)
            for row in range(max(start, lo), min(following, hi)):
                normalised(args, rows, row, n)
            start = following

    return body


def _tilts(S, centre, vectors):
    """(by_maps, by_elements): inline functions that store level and tilt of rows in `places`."""
    import numpy as np

    from ..language.block import put
    from ..language.fused_activation import ZERO
    from ..language.prim import FP32, to_real
    from ..language.quad import first, fourth, second, third

    ldf, single, pair = FP32.ld, np.float32, pair_slopes(S, vectors)
    slopes, four = slope_sums(S, True), four_slopes(S)

    @inline
    def mean_of(rows, row):
        if centre:
            return ldf(rows.means, row)
        return ZERO

    @inline
    def keep(places, j, rows, row, total, centred, n):
        inverse, level, share = ldf(rows.inverses, row), ZERO, 1.0 / to_real(n)
        if centre:
            level = single(total * share)
        put(places, j, level)
        along = single(np.float64(inverse) * centred * share)
        put(places, TOGETHER + j, -inverse * along)

    @inline
    def by_maps(args, rows, row, n, places, j):
        """A row of maps with one gamma each, or a whole row if there is no gamma."""
        mean, total, centred = mean_of(rows, row), 0.0, 0.0
        maps, pixels = (rows.c, rows.s) if args.gamma != 0 else (1, n)
        channel = first_channel(rows, row)
        for c in range(0, maps, 2):
            o, other = row * n + c * pixels, min(c + 1, maps - 1)
            t0, q0, t1, q1 = pair(args, o, row * n + other * pixels, pixels, mean, mean)
            if args.gamma != 0:
                scale = np.float64(ldf(args.gamma, channel + c))
                t0, q0 = t0 * scale, q0 * scale
            total, centred = total + t0, centred + q0
            if other > c:
                scale = np.float64(ldf(args.gamma, channel + other))
                total, centred = total + t1 * scale, centred + q1 * scale
        keep(places, j, rows, row, total, centred, n)

    @inline
    def by_elements(args, rows, row, count, n, places):
        if vectors:
            r1, r2, r3 = row + min(1, count - 1), row + min(2, count - 1), row + count - 1
            m0, m1 = mean_of(rows, row), mean_of(rows, r1)
            m2, m3 = mean_of(rows, r2), mean_of(rows, r3)
            lines = Four(row * n, r1 * n, r2 * n, r3 * n, m0, m1, m2, m3)
            t, q = four(args, lines, first_channel(rows, row), n)
            keep(places, 0, rows, row, first(t), first(q), n)
            keep(places, 1, rows, r1, second(t), second(q), n)
            keep(places, 2, rows, r2, third(t), third(q), n)
            keep(places, 3, rows, r3, fourth(t), fourth(q), n)
        else:
            mean, channel = mean_of(rows, row), first_channel(rows, row)
            total, centred = slopes(args, row * n, channel, n, mean)
            keep(places, 0, rows, row, total, centred, n)

    return by_maps, by_elements


def dx(S, centre, vectors):
    """body(thread, nthreads, args, rows): dx (+)= the gradient of x."""
    from ..language.block import get, memory
    from ..language.elements import elements
    from ..language.fused_activation import ONE, ZERO
    from ..language.number import fma
    from ..language.prim import FP32

    width, load, load_first, store, spread = elements(S, vectors)
    _, load32, load32_first, _, _ = elements(FP32, vectors)
    ldf, new, fetch = FP32.ld, memory(2 * TOGETHER), fetcher(S, vectors)
    by_maps, by_elements = _tilts(S, centre, vectors)

    @inline
    def step(v, dz, to):
        return to.inverse * fma(v - to.mean, to.tilt, dz - to.level)

    @inline
    def line(args, base, channel, n, to, scale, by_element, far):
        """n elements, with a gamma of their `own` or one for all; `far` if no cache holds x."""
        full, ahead = n & -width, base + rows_ahead(n)
        for i in range(0, full, width):
            if far:
                fetch(args.x, ahead + i)
                fetch(args.dy, ahead + i)
                fetch(args.dx, ahead + i)
            if by_element:
                scale = load32(args.gamma, channel + i)
            d = step(load(args.x, base + i), load(args.dy, base + i) * scale, to)
            if args.acc != 0:
                d = d + load(args.dx, base + i)
            store(args.dx, base + i, d, width)
        if full < n:
            i, rest = base + full, n - full
            if by_element:
                scale = load32_first(args.gamma, channel + full, rest)
            d = step(load_first(args.x, i, rest), load_first(args.dy, i, rest) * scale, to)
            if args.acc != 0:
                d = d + load_first(args.dx, i, rest)
            store(args.dx, i, d, rest)

    @inline
    def gradient(args, rows, row, n, level, tilt):
        mean, inverse, channel = ZERO, ldf(rows.inverses, row), first_channel(rows, row)
        if centre:
            mean = ldf(rows.means, row)
        to = Line(spread(mean), spread(inverse), spread(level), spread(tilt))
        if args.gamma == 0:
            line(args, row * n, channel, n, to, spread(ONE), False, False)
        elif vectors and rows.s == 1 and rows.total * n > UNCACHED:
            line(args, row * n, channel, n, to, spread(ONE), True, True)
        elif rows.s == 1:
            line(args, row * n, channel, n, to, spread(ONE), True, False)
        else:
            for c in range(rows.c):
                scale = spread(ldf(args.gamma, channel + c))
                line(args, row * n + c * rows.s, channel, rows.s, to, scale, False, False)

    @inline
    def body(thread, nthreads, args, rows):
        (lo, hi), n, places = part(rows, thread, nthreads), rows.c * rows.s, new()
        by_element = rows.s == 1 and args.gamma != 0
        turn = TOGETHER if vectors and by_element and rows.groups == 1 else 1
        for start in range(lo, hi, turn):
            count = min(turn, hi - start)
            if by_element:
                by_elements(args, rows, start, count, n, places)
            else:
                by_maps(args, rows, start, n, places, 0)
            for j in range(count):
                gradient(args, rows, start + j, n, get(places, j), get(places, TOGETHER + j))

    return body
