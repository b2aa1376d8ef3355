"""Max pooling and its gradient, each one source for numbers and for vectors, with the same bits.

Vectors are 16 windows of a row, which move by one or two columns. Windows that reach over an edge
of the map, and those at the end of memory, are taken one by one. A comparison keeps the first of
equals and the last NaN, as torch does.
"""

from typing import Any, NamedTuple

from ..language.inlining import inline
from ..language.number import where
from ..language.strides import reach
from ..language.vector import WIDTH, counts, loads
from ..registry import kernel
from .operands import BACKWARD_WORK, DILATED_CHECK, SIZES, WORK, X, Y

_CHECK = f"{DILATED_CHECK};kh * kw <= 65536"
_FAST = {"variant": "fast", "when": "lanes >= 4 and sw <= 2", "check": _CHECK}


class _Span(NamedTuple):
    """Rows or columns of a window, from `first` to before `last`."""

    first: Any
    last: Any


def _windows(S, I, vectors: bool):  # noqa: E741
    """Inline (operands, plane, oy, ox, rows, columns, count): maxima of `count` windows from ox on,
    over these rows and columns, which are inside; the lowest number if there are none."""
    import numpy as np

    from ..language.elements import elements
    from ..language.prim import to_float

    _, ld, _, store, spread = elements(S, vectors)
    ld2, st_place, lowest = loads(S, 2), I.st, np.float32(-np.inf)

    @inline
    def load(k, offset):
        return ld2(k.x, offset) if vectors and k.sw == 2 else ld(k.x, offset)

    @inline
    def place(position):
        return to_float(position) if vectors else position

    if vectors:
        _, store_place = counts(I)
    else:

        @inline
        def store_place(address, index, value, count):
            st_place(address, index, value)

    @inline
    def windows(k, u, oy, ox, rows, columns, count):
        row = (u * k.h + oy * k.sh - k.ph) * k.wd + ox * k.sw - k.pw
        there = rows.first < rows.last and columns.first < columns.last
        start = rows.first * k.kw + columns.first if there else 0
        best, spot = spread(lowest), spread(place(start))
        for r in range(rows.first, rows.last):
            for s in range(columns.first, columns.last):
                v = load(k, row + r * k.dh * k.wd + s * k.dw)
                taken = (v > best) | (v != v)
                spot, best = where(taken, place(r * k.kw + s), spot), where(taken, v, best)
        offset = (u * k.oh + oy) * k.ow + ox
        store(k.y, offset, best, count)
        if k.idx != 0:
            store_place(k.idx, offset, spot, count)

    return windows


def _maxpool(vectors: bool):
    def factory(S, I):  # noqa: E741
        from ..language.prim import div

        one, several = _windows(S, I, False), _windows(S, I, vectors)
        first_inside, end_inside = reach()

        def run(thread, nthreads, k):
            lines, last = k.n * k.c * k.oh, (k.kw - 1) * k.dw
            left = min(first_inside(-k.pw, k.sw), k.ow)
            right = max(end_inside(last - k.pw, k.sw, k.wd, k.ow), left)
            size = k.n * k.c * k.h * k.wd - WIDTH * k.sw - last
            for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
                u = div(q, k.oh)
                oy = q - u * k.oh
                y0, ox = oy * k.sh - k.ph, 0
                rows = _Span(first_inside(y0, k.dh), end_inside(y0, k.dh, k.h, k.kh))
                last_row = (u * k.h + y0 + (rows.last - 1) * k.dh) * k.wd
                while ox < k.ow:
                    x0, columns = ox * k.sw - k.pw, _Span(0, k.kw)
                    inside = left <= ox < right
                    if vectors and inside and rows.first < rows.last and last_row + x0 <= size:
                        several(k, u, oy, ox, rows, columns, right - ox)
                        ox = min(ox + WIDTH, right)
                    else:
                        if not inside:
                            last_column = end_inside(x0, k.dw, k.wd, k.kw)
                            columns = _Span(first_inside(x0, k.dw), last_column)
                        one(k, u, oy, ox, rows, columns, 1)
                        ox += 1

        return run

    return factory


class _Rows(NamedTuple):
    """How far the kernel's next row is up: windows, and pixels beyond them; of windows' height."""

    windows: Any
    pixels: Any
    height: Any


@inline
def _up(apart, oy, left):
    """The window that a row of the kernel further up begins in, and the pixels from the window's
    first one to it."""
    oy, left = oy - apart.windows, left - apart.pixels
    return (oy - 1, left + apart.height) if left < 0 else (oy, left)


def _row_in_scratch(I, S):  # noqa: E741
    """Inline (operands, plane, top, phase, apart): a row's sums, in scratch. Each window adds where
    its maximum is; positions outside of the window or the image are skipped."""
    from ..language.fused_activation import ZERO
    from ..language.prim import FP32

    ld, ldi, ldf, stf = S.ld, I.ld, FP32.ld, FP32.st

    @inline
    def sums(k, u, top, phase, apart):
        for ix in range(k.wd):
            stf(k.ws, ix, ZERO)
        oy, left = top, phase
        for r in range(k.kh):
            if left == 0 and oy >= 0 and oy < k.oh:
                line = (u * k.oh + oy) * k.ow
                for ox in range(k.ow):
                    s = ldi(k.idx, line + ox) - r * k.kw
                    ix = ox * k.sw - k.pw + s * k.dw
                    if s >= 0 and s < k.kw and ix >= 0 and ix < k.wd:
                        stf(k.ws, ix, ldf(k.ws, ix) + ld(k.dy, line + ox))
            oy, left = _up(apart, oy, left)

    return sums


def _row_in_registers(I, S):  # noqa: E741
    """Inline (operands, plane, window, top, phase): sums of 16 columns, and of the odd ones beside
    them where windows move by two. They may read, and leave out, windows of the lines around."""
    from ..language.fused_activation import ZERO
    from ..language.prim import to_float
    from ..language.vector import vkeep, vsplat

    vld, (ld_where, _) = loads(S), counts(I)

    @inline
    def sums(k, u, j, top, phase, apart):
        even = odds = vsplat(ZERO)
        oy, left = top, phase
        for r in range(k.kh):
            if left == 0 and oy >= 0 and oy < k.oh:
                line = (u * k.oh + oy) * k.ow
                for back in range(k.kw):  # a pixel's windows from left to right
                    s = k.kw - 1 - back
                    odd = (s * k.dw - k.pw) & (k.sw - 1)
                    shift = (s * k.dw - k.pw - odd) >> (k.sw - 1)
                    result = ld_where(k.idx, line + j - shift)
                    v = where(result == to_float(r * k.kw + s), vld(k.dy, line + j - shift), ZERO)
                    if j < shift or j + WIDTH > k.ow + shift:
                        v = vkeep(v, shift - j, k.ow + shift - j)
                    if odd == 0:
                        even = even + v
                    else:
                        odds = odds + v
            oy, left = _up(apart, oy, left)
        return even, odds

    return sums


def _maxpool_bwd(vectors: bool):
    def factory(I, S):  # noqa: E741
        from ..language.elements import elements
        from ..language.prim import FP32, div, mod
        from ..language.vector import vinterleave

        width, _, load_first, store, _ = elements(S, vectors)
        sums_first = elements(FP32, vectors).load_first
        scatter, sums = _row_in_scratch(I, S), _row_in_registers(I, S)

        @inline
        def write(k, row, ix, total):
            if k.acc != 0:
                total = total + load_first(k.dx, row + ix, k.wd - ix)
            store(k.dx, row + ix, total, k.wd - ix)

        @inline
        def row_of(k, q, u, top, phase, inside, apart):
            row = q * k.wd
            if vectors and inside:
                for j in range(0, (k.wd + k.sw - 1) >> (k.sw - 1), WIDTH):
                    even, odds = sums(k, u, j, top, phase, apart)
                    ix = j << (k.sw - 1)
                    if k.sw == 1:
                        write(k, row, ix, even)
                    else:
                        write(k, row, ix, vinterleave(even, odds, 0))
                        if ix + WIDTH < k.wd:
                            write(k, row, ix + WIDTH, vinterleave(even, odds, 1))
            else:
                scatter(k, u, top, phase, apart)
                for ix in range(0, k.wd, width):
                    write(k, row, ix, sums_first(k.ws, ix, k.wd - ix))

        def run(thread, nthreads, k):
            rows, by = k.n * k.c * k.h, k.sw - 1
            first, stop = div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)
            # How far windows that are read lie before a column, and behind it.
            before, behind = max((k.kw - 1) * k.dw - k.pw, 0) >> by, (k.pw + by) >> by
            behind += ((k.wd - 1) >> by >> 4 << 4) + WIDTH
            lowest, windows = div((k.kh - 1) * k.dh, k.sh) + 1, k.n * k.c * k.oh * k.ow
            apart = _Rows(div(k.dh, k.sh), mod(k.dh, k.sh), k.sh)
            u, iy = div(first, k.h), mod(first, k.h)
            top, phase = div(iy + k.ph, k.sh), mod(iy + k.ph, k.sh)
            for q in range(first, stop):
                line = (u * k.oh + max(top - lowest, 0)) * k.ow
                last = (u * k.oh + min(top, k.oh - 1)) * k.ow
                inside = line >= before and last + behind <= windows
                row_of(k, q, u, top, phase, inside, apart)
                iy, phase = iy + 1, phase + 1
                if phase == k.sh:
                    top, phase = top + 1, 0
                if iy == k.h:
                    u, iy = u + 1, 0
                    top, phase = div(k.ph, k.sh), mod(k.ph, k.sh)

        return run

    return factory


for _vectors, _pool, _back in (
    (True, _FAST, _FAST),
    (False, {"check": _CHECK, "work": WORK}, {"check": _CHECK, "work": BACKWARD_WORK}),
):
    # y = maximum of each window; idx = its position r * kw + s, the first among equals. Written: y,
    # idx whole (idx as u8 holds windows of at most 256). Threads split rows of y.
    _operands = f"x:r:S{X} y:w:S{Y} idx?:w:I{Y} {SIZES} dh dw"
    kernel("maxpool", _operands, **_pool)(_maxpool(_vectors))
    # dx (+)= dy of every window whose maximum the pixel was: kernel rows in order, then windows;
    # what was in dx is added last. Written: dx whole. Scratch: a row. Threads split rows of dx.
    _operands = f"idx:r:I{Y} dy:r:S{Y} dx:m:S{X} ws:t[4*wd] {SIZES} dh dw acc=flag"
    kernel("maxpool_bwd", _operands, **_back)(_maxpool_bwd(_vectors))
