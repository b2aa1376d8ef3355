"""Packing of panels (conv/fast_tile.py) of windows that move on by more than two columns.

So patches are read, and the first layers of nets for large pictures. Sixteen elements of each of
sixteen windows side by side are read as a vector, and turned: a vector of pixels for each tap.
"""

import functools

from ..language.act import NONE, act_value
from ..language.calls import outline
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage, to_float
from ..language.square import square16, turned_lines
from ..language.vector import WIDTH, loads, stores, vkeep, vsplat
from .fast_lines import affine_of, fetch_ahead
from .fast_tile import tile_region, valid_range
from .records import Ahead, Map, Prologue, Tile, Window

_vld, _vst, _st = loads(FP32), stores(FP32), FP32.st


@inline
def is_strided(window):
    """Whether windows are more than two columns apart, their taps next to each other."""
    columns = window.columns
    return window.column_stride > 2 and (columns.distance == 1 or columns.taps == 1)


@functools.cache
def _line(S: Storage):
    """Inline function that writes a line of all tap columns of a channel."""
    turned, ld = turned_lines(S), S.ld

    @inline
    def turn(target, step, source, at, stride, taps):
        """target[tap][j] = element at + j * stride + tap, 0 outside the array, j < 16."""
        if at >= 0 and at + (WIDTH - 1) * stride + WIDTH <= source.size:
            turned(target, step, taps, source.at, at, stride)
        else:
            for tap in range(taps):
                for j in range(WIDTH):
                    e = at + j * stride + tap
                    held = e >= 0 and e < source.size
                    _st(target + tap * step, j, ld(source.at, e) if held else 0)

    @inline
    def change(target, region, square, taps, kept, how):
        """The same of what `square` has, as `how` says; 0 but for `kept` of the first tap's range,
        stride and size, and of those after it."""
        offset, stride, size, count = kept
        for tap in range(taps):
            v = _vld(square, tap * WIDTH)
            if how.norm != 0:
                v = fma(v, how.scale, how.shift)
            inside = valid_range(offset + tap, stride, size, count)
            v = act_value(how.act, v, how.lo, how.hi)
            _vst(target + tap * region, 0, vkeep(v, inside.first, inside.last), WIDTH)

    @inline
    def line(target, region, square, source, at, tile, window, how):
        """A line of every tap column, `region` bytes apart, from element `at` on."""
        columns, sx, wd = window.columns, window.column_stride, source.width
        plain = how.norm == 0 and how.act == NONE
        for j in range(0, tile.columns, WIDTH):
            count = min(WIDTH, tile.columns - j)
            for tap0 in range(0, columns.taps, WIDTH):
                taps, to = min(WIDTH, columns.taps - tap0), target + tap0 * region + 4 * j
                offset, e = (tile.column0 + j) * sx + columns.low + tap0, at + j * sx + tap0
                if plain and offset >= 0 and offset + (count - 1) * sx + taps <= wd:
                    turn(to, region, source, e, sx, taps)
                else:
                    turn(square, 4 * WIDTH, source, e, sx, taps)
                    change(to, region, square, taps, (offset, sx, wd, count), how)

    return line


@functools.cache
def strided_fill(S: Storage):
    """Function that packs a chunk of channels, for windows that are strided."""
    line, fetch = _line(S), fetch_ahead(S)

    def fill(
        panel,
        nothing,
        source: Map,
        first,
        channels,
        tile: Tile,
        window: Window,
        prologue: Prologue,
        ahead: Ahead,
    ):
        """Arguments as of fast_pack.panel_fill."""
        h, wd, rows, columns = source.height, source.width, window.rows, window.columns
        region, step = 4 * tile_region(window, tile), source.channels * h * wd
        count, square, zero = tile.rows + window.extra, square16(), vsplat(to_float(nothing))
        for i in range(channels):
            how = affine_of(prologue, first + i, source.channels)
            plane = (tile.image0 * source.channels + first + i) * h * wd
            plane += tile.column0 * window.column_stride
            fetch(source, plane + tile.row0 * window.row_stride * wd, tile, ahead)
            target = panel + i * columns.taps * region
            for bank in range(window.banks):
                y = tile.row0 * window.row_stride + rows.low + bank * rows.distance
                for _ in range(count):
                    for image in range(tile.images):
                        at = plane + image * step + y * wd + columns.low
                        if y >= 0 and y < h:
                            line(target, region, square, source, at, tile, window, how)
                        else:
                            for tap in range(columns.taps):
                                for j in range(0, tile.columns, WIDTH):
                                    _vst(target + tap * region, j, zero, WIDTH)
                        target += 4 * tile.columns
                    y += window.row_stride

    return outline(f"et_strided_{S.name}", fill)
