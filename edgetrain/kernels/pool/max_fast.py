"""Max pooling by windows that move one or two columns, on vectors of 16 windows of a row.

The operands are those of plain.py, and so are results: a comparison keeps the first of equals and
the last NaN, a sum takes kernel rows in order, then windows. Windows that reach over an edge of the
map, and those at the end of memory, are taken one by one.
"""

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


@kernel("maxpool_bwd", maxpool_bwd_operands, **_FAST)
def maxpool_bwd(I, S):  # noqa: E741
    """As the plain variant. Where windows move by two, sums of even columns lie before the others'
    in scratch."""
    from ..language.act import ZERO
    from ..language.prim import FP32, div, mod, to_float
    from ..language.vector import loads_first, vinterleave, vsplat

    vld, vld_first, vst = loads(S), loads_first(S), stores(S)
    sums_first, put = loads_first(FP32), stores(FP32)
    ld, ldi, ldf, stf = S.ld, I.ld, FP32.ld, FP32.st
    (ld_where, _), (first_inside, end_inside) = counts(I), reach()

    @inline
    def add_element(k, line, r, s, sums):
        """Adds the gradients of a row of windows whose maximum is their element (r, s)."""
        at, position = s * k.dw - k.pw, r * k.kw + s
        odd = at & (k.sw - 1)
        shift = div(at - odd, k.sw) if at >= odd else -div(odd - at, k.sw)
        target = sums + 4 * odd * ((k.wd + 1) >> 1) + 4 * shift
        ox, stop = first_inside(at, k.sw), end_inside(at, k.sw, k.wd, k.ow)
        while ox < stop and line + ox + WIDTH <= k.n * k.c * k.oh * k.ow:
            found = ld_where(k.idx, line + ox)
            v = where(found == to_float(position), vld(k.dy, line + ox), ZERO)
            put(target, ox, sums_first(target, ox, stop - ox) + v, stop - ox)
            ox += WIDTH
        for x in range(ox, stop):
            if ldi(k.idx, line + x) == position:
                stf(target, x, ldf(target, x) + ld(k.dy, line + x))

    def run(thread, nthreads, k):
        rows, half = k.n * k.c * k.h, (k.wd + 1) >> 1
        for q in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            u, iy = div(q, k.h), mod(q, k.h)
            for ix in range(0, k.wd, WIDTH):
                put(k.ws, ix, vsplat(ZERO), k.wd - ix)
            for r in range(k.kh):
                ty = iy + k.ph - r * k.dh
                if ty < 0 or mod(ty, k.sh) != 0 or div(ty, k.sh) >= k.oh:
                    continue
                for s in range(k.kw):  # a pixel's windows from left to right
                    add_element(k, (u * k.oh + div(ty, k.sh)) * k.ow, r, k.kw - 1 - s, k.ws)
            for ix in range(0, k.wd, WIDTH):
                rest = k.wd - ix
                if k.sw == 1:
                    total = sums_first(k.ws, ix, rest)
                else:
                    j = ix >> 1
                    even = sums_first(k.ws, j, half - j)
                    total = vinterleave(even, sums_first(k.ws, half + j, k.wd - half - j), 0)
                if k.acc != 0:
                    total = total + vld_first(k.dx, q * k.wd + ix, rest)
                vst(k.dx, q * k.wd + ix, total, rest)

    return run
