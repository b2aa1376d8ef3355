"""Max pooling by windows that move one or two columns, on vectors of 16 windows of a row.

The operands are those of plain.py, and so are results: a comparison keeps the first of equals and
the last NaN, a sum takes kernel rows in order, then windows. Windows that reach over an edge of the
map, and those at the end of memory, are taken one by one.
"""

from typing import Any, NamedTuple

from ..language.inlining import inline
from ..language.number import where
from ..language.strides import reach
from ..language.vector import WIDTH, counts, loads, stores
from ..registry import kernel
from .plain import MAX_CHECK, maxpool_bwd_operands, maxpool_operands, one_window

_FAST = {"variant": "fast", "when": "lanes >= 4 and sw <= 2", "check": MAX_CHECK}


@inline
def _taken(v, best):
    """Whether a maximum takes v."""
    return (v > best) | (v != v)


@kernel("maxpool", maxpool_operands, **_FAST)
def maxpool(S, I):  # noqa: E741
    """As the plain variant."""
    from ..language.prim import div, to_float
    from ..language.vector import vsplat

    vld, vld2, vst, one = loads(S), loads(S, 2), stores(S), one_window(S, I)
    (_, st_where), (first_inside, end_inside) = counts(I), reach()

    @inline
    def load(k, at):
        return vld(k.x, at) if k.sw == 1 else vld2(k.x, at)

    @inline
    def sixteen(k, u, oy, ox, top, bottom, count):
        """`count` windows from ox on, whose kernel rows from `top` to before `bottom` are there."""
        row = (u * k.h + oy * k.sh - k.ph) * k.wd + ox * k.sw - k.pw
        best = load(k, row + top * k.dh * k.wd)
        spot = vsplat(to_float(top * k.kw))
        for r in range(top, bottom):
            for s in range(k.kw):
                v = load(k, row + r * k.dh * k.wd + s * k.dw)
                taken = _taken(v, best)
                spot, best = where(taken, to_float(r * k.kw + s), spot), where(taken, v, best)
        at = (u * k.oh + oy) * k.ow + ox
        vst(k.y, at, best, count)
        if k.idx != 0:
            st_where(k.idx, at, spot, count)

    def run(thread, nthreads, k):
        lines, last = k.n * k.c * k.oh, (k.kw - 1) * k.dw
        left = min(first_inside(-k.pw, k.sw), k.ow)
        right = max(end_inside(last - k.pw, k.sw, k.wd, k.ow), left)
        size = k.n * k.c * k.h * k.wd - WIDTH * k.sw - last
        for q in range(div(lines * thread, nthreads), div(lines * (thread + 1), nthreads)):
            u = div(q, k.oh)
            oy = q - u * k.oh
            top = first_inside(oy * k.sh - k.ph, k.dh)
            bottom = end_inside(oy * k.sh - k.ph, k.dh, k.h, k.kh)
            last_row = (u * k.h + oy * k.sh - k.ph + (bottom - 1) * k.dh) * k.wd
            for ox in range(left):
                one(k, u, oy, ox)
            ox = left
            while ox < right and top < bottom and last_row + ox * k.sw - k.pw <= size:
                sixteen(k, u, oy, ox, top, bottom, right - ox)
                ox += WIDTH
            for x in range(min(ox, right), k.ow):
                one(k, u, oy, x)

    return run


class _Rows(NamedTuple):
    """How far the kernel's next row is up: windows, and pixels beyond them; of windows' height."""

    windows: Any
    pixels: Any
    height: Any


@inline
def _up(apart, oy, left):
    """The window a row of the kernel further up begins in, and the pixels between: 0 where it
    begins there."""
    oy, left = oy - apart.windows, left - apart.pixels
    return (oy - 1, left + apart.height) if left < 0 else (oy, left)


def _row_in_scratch(I, S):  # noqa: E741
    """Inline (operands, plane, top, phase): a row's sums, in scratch. Where windows move by two,
    those of even columns lie before the others'."""
    from ..language.fused_activation import ZERO
    from ..language.prim import FP32, to_float
    from ..language.vector import loads_first, vsplat

    vld, ld, ldi, ldf, stf = loads(S), S.ld, I.ld, FP32.ld, FP32.st
    sums_first, put = loads_first(FP32), stores(FP32)
    (ld_where, _), (first_inside, end_inside) = counts(I), reach()

    @inline
    def add_element(k, line, r, s, sums):
        """Adds the gradients of a row of windows whose maximum is their element (r, s)."""
        at, position = s * k.dw - k.pw, r * k.kw + s
        odd = at & (k.sw - 1)
        target = sums + 4 * odd * ((k.wd + 1) >> 1) + 4 * ((at - odd) >> (k.sw - 1))
        ox, stop = first_inside(at, k.sw), end_inside(at, k.sw, k.wd, k.ow)
        while ox < stop and line + ox + WIDTH <= k.n * k.c * k.oh * k.ow:
            found = ld_where(k.idx, line + ox)
            v = where(found == to_float(position), vld(k.dy, line + ox), ZERO)
            put(target, ox, sums_first(target, ox, stop - ox) + v, stop - ox)
            ox += WIDTH
        for x in range(ox, stop):
            if ldi(k.idx, line + x) == position:
                stf(target, x, ldf(target, x) + ld(k.dy, line + x))

    @inline
    def fill(k, u, top, phase, apart):
        for ix in range(0, k.wd, WIDTH):
            put(k.ws, ix, vsplat(ZERO), k.wd - ix)
        oy, left = top, phase
        for r in range(k.kh):
            if left == 0 and oy >= 0 and oy < k.oh:
                for s in range(k.kw):  # a pixel's windows from left to right
                    add_element(k, (u * k.oh + oy) * k.ow, r, k.kw - 1 - s, k.ws)
            oy, left = _up(apart, oy, left)

    return fill


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
                    found = ld_where(k.idx, line + j - shift)
                    v = where(found == to_float(r * k.kw + s), vld(k.dy, line + j - shift), ZERO)
                    if j < shift or j + WIDTH > k.ow + shift:
                        v = vkeep(v, shift - j, k.ow + shift - j)
                    if odd == 0:
                        even = even + v
                    else:
                        odds = odds + v
            oy, left = _up(apart, oy, left)
        return even, odds

    return sums


@kernel("maxpool_bwd", maxpool_bwd_operands, **_FAST)
def maxpool_bwd(I, S):  # noqa: E741
    """As the plain variant, without scratch for rows whose vectors lie within memory."""
    from ..language.prim import FP32, div, mod
    from ..language.vector import loads_first, vinterleave

    vld_first, vst, sums_first = loads_first(S), stores(S), loads_first(FP32)
    fill, sums = _row_in_scratch(I, S), _row_in_registers(I, S)

    @inline
    def write(k, row, ix, total):
        if k.acc != 0:
            total = total + vld_first(k.dx, row + ix, k.wd - ix)
        vst(k.dx, row + ix, total, k.wd - ix)

    @inline
    def row_of(k, q, u, top, phase, inside, apart):
        row, half = q * k.wd, (k.wd + k.sw - 1) >> (k.sw - 1)
        if not inside:
            fill(k, u, top, phase, apart)
        for j in range(0, half, WIDTH):
            ix = j << (k.sw - 1)
            if inside:
                even, odds = sums(k, u, j, top, phase, apart)
            else:
                even, odds = (
                    sums_first(k.ws, j, half - j),
                    sums_first(k.ws, half + j, k.wd - half - j),
                )
            if k.sw == 1:
                write(k, row, ix, even)
            else:
                write(k, row, ix, vinterleave(even, odds, 0))
                if ix + WIDTH < k.wd:
                    write(k, row, ix + WIDTH, vinterleave(even, odds, 1))

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
