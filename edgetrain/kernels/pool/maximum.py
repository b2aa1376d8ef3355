"""Max pooling and its gradient, each with one source for scalars and vectors, with the same bits.

A vector holds 16 windows of a row, with a column stride of one or two. Windows that cross an edge
of the map, and those at the end of memory, are computed one by one. A comparison keeps the first of
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
    """Rows or columns first <= i < last of a window."""

    first: Any
    last: Any


def _windows(S, I, vectors: bool):  # noqa: E741
    """Inline (operands, plane, oy, ox, rows, columns, count): maxima of `count` windows from ox on,
    over these rows and columns, which are inside the map; the lowest number if there are none."""
    import numpy as np

    from ..language.elements import elements
    from ..language.prim import to_float

    _, ld, _, store, spread = elements(S, vectors)
    ld2, st_place, lowest = loads(S, 2), I.st, np.float32(-np.inf)

    @inline
    def load(args, offset):
        return ld2(args.x, offset) if vectors and args.sw == 2 else ld(args.x, offset)

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
    def windows(args, u, oy, ox, rows, columns, count):
        row = (u * args.h + oy * args.sh - args.ph) * args.wd + ox * args.sw - args.pw
        there = rows.first < rows.last and columns.first < columns.last
        start = rows.first * args.kw + columns.first if there else 0
        best, spot = spread(lowest), spread(place(start))
        for r in range(rows.first, rows.last):
            for s in range(columns.first, columns.last):
                v = load(args, row + r * args.dh * args.wd + s * args.dw)
                taken = (v > best) | (v != v)
                spot, best = where(taken, place(r * args.kw + s), spot), where(taken, v, best)
        offset = (u * args.oh + oy) * args.ow + ox
        store(args.y, offset, best, count)
        if args.idx != 0:
            store_place(args.idx, offset, spot, count)

    return windows


def _maxpool(vectors: bool):
    def factory(S, I):  # noqa: E741
        from ..language.prim import div

        one, several = _windows(S, I, False), _windows(S, I, vectors)
        first_inside, end_inside = reach()

        def run(thread, nthreads, args):
            lines, last = args.n * args.c * args.oh, (args.kw - 1) * args.dw
            left = min(first_inside(-args.pw, args.sw), args.ow)
            right = max(end_inside(last - args.pw, args.sw, args.wd, args.ow), left)
            size = args.n * args.c * args.h * args.wd - WIDTH * args.sw - last
            for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
                u = div(q, args.oh)
                oy = q - u * args.oh
                y0, ox = oy * args.sh - args.ph, 0
                rows = _Span(first_inside(y0, args.dh), end_inside(y0, args.dh, args.h, args.kh))
                last_row = (u * args.h + y0 + (rows.last - 1) * args.dh) * args.wd
                while ox < args.ow:
                    x0, columns = ox * args.sw - args.pw, _Span(0, args.kw)
                    inside = left <= ox < right
                    if vectors and inside and rows.first < rows.last and last_row + x0 <= size:
                        several(args, u, oy, ox, rows, columns, right - ox)
                        ox = min(ox + WIDTH, right)
                    else:
                        if not inside:
                            last_column = end_inside(x0, args.dw, args.wd, args.kw)
                            columns = _Span(first_inside(x0, args.dw), last_column)
                        one(args, u, oy, ox, rows, columns, 1)
                        ox += 1

        return run

    return factory


class _Rows(NamedTuple):
    """Distance from one row of the kernel to the next: windows, and remaining pixels; `height`:
    pixels from one window to the next."""

    windows: Any
    pixels: Any
    height: Any


@inline
def _up(apart, oy, left):
    """Move (oy, left), the pixel row `left` below the first of window row oy, a kernel row up."""
    oy, left = oy - apart.windows, left - apart.pixels
    return (oy - 1, left + apart.height) if left < 0 else (oy, left)


def _row_in_scratch(I, S):  # noqa: E741
    """Inline (operands, plane, top, phase, apart): sum a row in scratch.

    Each window adds at the position of its maximum; positions outside the window or the image are
    skipped.
    """
    from ..language.fused_activation import ZERO
    from ..language.prim import FP32

    ld, ldi, ldf, stf = S.ld, I.ld, FP32.ld, FP32.st

    @inline
    def sums(args, u, top, phase, apart):
        for ix in range(args.wd):
            stf(args.ws, ix, ZERO)
        oy, left = top, phase
        for r in range(args.kh):
            if left == 0 and oy >= 0 and oy < args.oh:
                line = (u * args.oh + oy) * args.ow
                for ox in range(args.ow):
                    s = ldi(args.idx, line + ox) - r * args.kw
                    ix = ox * args.sw - args.pw + s * args.dw
                    if s >= 0 and s < args.kw and ix >= 0 and ix < args.wd:
                        stf(args.ws, ix, ldf(args.ws, ix) + ld(args.dy, line + ox))
            oy, left = _up(apart, oy, left)

    return sums


def _row_in_registers(I, S):  # noqa: E741
    """Inline (operands, plane, window, top, phase, apart): sums of 16 columns and, if the column
    stride is two, of the odd columns between them. Windows of neighbouring lines may be read, but
    not added."""
    from ..language.fused_activation import ZERO
    from ..language.prim import to_float
    from ..language.vector import vkeep, vsplat

    vld, (ld_where, _) = loads(S), counts(I)

    @inline
    def sums(args, u, j, top, phase, apart):
        even = odds = vsplat(ZERO)
        oy, left = top, phase
        for r in range(args.kh):
            if left == 0 and oy >= 0 and oy < args.oh:
                line = (u * args.oh + oy) * args.ow
                for back in range(args.kw):  # a pixel's windows from left to right
                    s = args.kw - 1 - back
                    odd = (s * args.dw - args.pw) & (args.sw - 1)
                    shift = (s * args.dw - args.pw - odd) >> (args.sw - 1)
                    result = ld_where(args.idx, line + j - shift)
                    v = where(
                        result == to_float(r * args.kw + s), vld(args.dy, line + j - shift), ZERO
                    )
                    if j < shift or j + WIDTH > args.ow + shift:
                        v = vkeep(v, shift - j, args.ow + shift - j)
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
        def write(args, row, ix, total):
            if args.acc != 0:
                total = total + load_first(args.dx, row + ix, args.wd - ix)
            store(args.dx, row + ix, total, args.wd - ix)

        @inline
        def row_of(args, q, u, top, phase, inside, apart):
            row = q * args.wd
            if vectors and inside:
                for j in range(0, (args.wd + args.sw - 1) >> (args.sw - 1), WIDTH):
                    even, odds = sums(args, u, j, top, phase, apart)
                    ix = j << (args.sw - 1)
                    if args.sw == 1:
                        write(args, row, ix, even)
                    else:
                        write(args, row, ix, vinterleave(even, odds, 0))
                        if ix + WIDTH < args.wd:
                            write(args, row, ix + WIDTH, vinterleave(even, odds, 1))
            else:
                scatter(args, u, top, phase, apart)
                for ix in range(0, args.wd, width):
                    write(args, row, ix, sums_first(args.ws, ix, args.wd - ix))

        def run(thread, nthreads, args):
            rows, by = args.n * args.c * args.h, args.sw - 1
            first, stop = div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)
            # How far before and after a column windows are read.
            before, behind = max((args.kw - 1) * args.dw - args.pw, 0) >> by, (args.pw + by) >> by
            behind += ((args.wd - 1) >> by >> 4 << 4) + WIDTH
            lowest = div((args.kh - 1) * args.dh, args.sh) + 1
            windows = args.n * args.c * args.oh * args.ow
            apart = _Rows(div(args.dh, args.sh), mod(args.dh, args.sh), args.sh)
            u, iy = div(first, args.h), mod(first, args.h)
            top, phase = div(iy + args.ph, args.sh), mod(iy + args.ph, args.sh)
            for q in range(first, stop):
                line = (u * args.oh + max(top - lowest, 0)) * args.ow
                last = (u * args.oh + min(top, args.oh - 1)) * args.ow
                inside = line >= before and last + behind <= windows
                row_of(args, q, u, top, phase, inside, apart)
                iy, phase = iy + 1, phase + 1
                if phase == args.sh:
                    top, phase = top + 1, 0
                if iy == args.h:
                    u, iy = u + 1, 0
                    top, phase = div(args.ph, args.sh), mod(args.ph, args.sh)

        return run

    return factory


for _vectors, _pool, _back in (
    (True, _FAST, _FAST),
    (False, {"check": _CHECK, "work": WORK}, {"check": _CHECK, "work": BACKWARD_WORK}),
):
    # y = maximum of each window; idx = its position r * kw + s, the first among equals. Written:
    # all of y, idx (idx as u8 holds windows of at most 256). Threads split rows of y.
    _operands = f"x:r:S{X} y:w:S{Y} idx?:w:I{Y} {SIZES} dh dw"
    kernel("maxpool", _operands, **_pool)(_maxpool(_vectors))
    # dx (+)= dy of every window whose maximum the pixel was: kernel rows in order, then windows;
    # the previous dx is added last. Written: all of dx. Scratch: a row. Threads split rows of dx.
    _operands = f"idx:r:I{Y} dy:r:S{Y} dx:m:S{X} ws:t[4*wd] {SIZES} dh dw acc=flag"
    kernel("maxpool_bwd", _operands, **_back)(_maxpool_bwd(_vectors))
