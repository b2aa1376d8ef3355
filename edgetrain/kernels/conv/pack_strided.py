"""Packs panels of windows with a column stride of more than two.

Patch embeddings and the first layers of networks for large pictures are read this way. Sixteen
elements of each of sixteen neighbouring windows are loaded as vectors and transposed: the result is
a vector of pixels for each tap.
"""

import functools

from ..language.fused_activation import NONE, act_value
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage, to_float
from ..language.square import square16, turned_lines
from ..language.vector import WIDTH, loads, stores, vkeep, vsplat
from .fast_tile import valid_range
from .pack_parts import Way

_vld, _vst, _st = loads(FP32), stores(FP32), FP32.st


@inline
def _suits(tile, source, window, prologue):
    """Whether windows are more than two columns apart, with adjacent taps."""
    columns = window.columns
    return window.column_stride > 2 and (columns.distance == 1 or columns.taps == 1)


@functools.cache
def _line(S: Storage):
    """Inline function that writes a line of all tap columns of a channel."""
    turned, ld = turned_lines(S), S.ld

    @inline
    def turn(target, step, source, offset, stride, taps):
        """target[tap][j] = element offset + j * stride + tap, 0 outside the array, j < 16."""
        if offset >= 0 and offset + (WIDTH - 1) * stride + WIDTH <= source.size:
            turned(target, step, taps, source.address, offset, stride)
        else:
            for tap in range(taps):
                for j in range(WIDTH):
                    e = offset + j * stride + tap
                    held = e >= 0 and e < source.size
                    _st(target + tap * step, j, ld(source.address, e) if held else 0)

    @inline
    def change(target, region, square, taps, kept, how):
        """target[tap][j] = square[tap][j] transformed by `how`, 0 outside the map.

        kept: (offset, stride, size, count) for the first tap's `valid_range`; the offset rises by 1
        from tap to tap.
        """
        offset, stride, size, count = kept
        for tap in range(taps):
            v = _vld(square, tap * WIDTH)
            if how.norm != 0:
                v = fma(v, how.scale, how.shift)
            inside = valid_range(offset + tap, stride, size, count)
            v = act_value(how.act, v, how.lo, how.hi)
            _vst(target + tap * region, 0, vkeep(v, inside.first, inside.last), WIDTH)

    @inline
    def line(target, region, square, source, start, tile, window, how):
        """Write a line of every tap column, `region` bytes apart, from element `start` on."""
        columns, sx, wd = window.columns, window.column_stride, source.width
        plain = how.norm == 0 and how.act == NONE
        for j in range(0, tile.columns, WIDTH):
            count = min(WIDTH, tile.columns - j)
            for tap0 in range(0, columns.taps, WIDTH):
                taps, to = min(WIDTH, columns.taps - tap0), target + tap0 * region + 4 * j
                offset, e = (tile.column0 + j) * sx + columns.low + tap0, start + j * sx + tap0
                if plain and offset >= 0 and offset + (count - 1) * sx + taps <= wd:
                    turn(to, region, source, e, sx, taps)
                else:
                    turn(square, 4 * WIDTH, source, e, sx, taps)
                    change(to, region, square, taps, (offset, sx, wd, count), how)

    return line


def _bank(S: Storage):
    line = _line(S)

    @inline
    def bank(to, source, tile, window, how):
        wd, target, y = source.width, to.target, to.low
        area, zero, square = (
            source.channels * source.height * wd,
            vsplat(to_float(to.nothing)),
            square16(),
        )
        first = to.plane + tile.column0 * window.column_stride + window.columns.low
        for _ in range(tile.rows + window.extra):
            for image in range(tile.images):
                offset = first + image * area + y * wd
                if y >= 0 and y < source.height:
                    line(target, to.region, square, source, offset, tile, window, how)
                else:
                    for tap in range(window.columns.taps):
                        for j in range(0, tile.columns, WIDTH):
                            _vst(target + tap * to.region, j, zero, WIDTH)
                target += 4 * tile.columns
            y += window.row_stride

    return bank


strided = Way("strided", _suits, _bank)
