"""Packing of panels (conv/fast_tile.py) of windows that move on by two columns, of whole lines.

A line of the input is read, converted and normalised once, and parted: its even columns are one tap
column of the panel, its odd ones the next. The other tap columns are copies of these two, moved
along the lines.
"""

import functools
from typing import NamedTuple

from ..language.act import CLIP, NONE, ONE, RELU, ZERO, act_value
from ..language.calls import outline
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage
from ..language.vector import (
    V16,
    WIDTH,
    define,
    loads,
    loads_first,
    shuffle,
    stores,
    vkeep,
    vsplat,
)
from .fast_lines import affine_of, fetch_ahead, moved, nothing_at
from .fast_sides import MINUS_ZERO
from .fast_tile import ceil_div, pitch_of, tile_region, valid_range
from .records import Affine, Ahead, Map, Prologue, Tile, Window

_vst = stores(FP32)
_MOST = 16  # tap columns


def _every_other(first: int):
    """(vector, vector after) -> lanes first, first + 2, ... of both."""
    places = range(first, 2 * WIDTH, 2)
    return define(V16(V16, V16), lambda builder, args: shuffle(builder, *args, places))


_evens, _odds = _every_other(0), _every_other(1)


class Halves(NamedTuple):
    """Where a bank's lines come from, those that are in the map: `images` of each of `rows`.

    Line (row, image) begins at element at + row * row_step + image * image_step of x and has
    `width` columns; each part has room for `columns`. fast: whole vectors of these end in x.
    """

    x: int
    size: int
    at: int
    rows: int
    row_step: int
    images: int
    image_step: int
    width: int
    columns: int
    fast: int


@inline
def is_halved(tile, source, window):
    """Whether windows are two columns apart, and a tile's panel has two tap columns of which the
    others are copies: nothing to the right of a tile's columns is in the map."""
    columns = window.columns
    if window.column_stride != 2 or tile.column0 != 0 or 2 * tile.columns < source.width:
        return False
    if columns.taps == 1:
        return columns.low == 0
    first_odd = 1 - columns.low
    return columns.distance == 1 and columns.low <= 0 and first_odd < columns.taps <= _MOST


@functools.cache
def _parts(S: Storage):
    """Function that parts lines, each into one at `even` and one at `odd`; may be the same place,
    which then has the even one."""
    vld, vfirst = loads(S), loads_first(S)

    @inline
    def fast(lines, at):
        return vld(lines.x, at)

    @inline
    def careful(lines, at):
        return vfirst(lines.x, at, lines.size - at)

    @inline
    def every(even, odd, lines, read, act, how):
        width, columns, at = lines.width, lines.columns, lines.at
        scale, shift = vsplat(how.scale), vsplat(how.shift)
        for _ in range(lines.rows):
            first = at
            for _ in range(lines.images):
                for j in range(0, columns, WIDTH):
                    v = fma(read(lines, first + 2 * j), scale, shift)
                    v, w = act_value(act, v, how.lo, how.hi), vsplat(ZERO)
                    if width > WIDTH:
                        w = fma(read(lines, first + 2 * j + WIDTH), scale, shift)
                        w = act_value(act, w, how.lo, how.hi)
                    e, o = _evens(v, w), _odds(v, w)
                    if 2 * columns > width:
                        e, o = vkeep(e, 0, ((width + 1) >> 1) - j), vkeep(o, 0, (width >> 1) - j)
                    _vst(odd, j, o, WIDTH)
                    _vst(even, j, e, WIDTH)
                first, even, odd = first + lines.image_step, even + 4 * columns, odd + 4 * columns
            at += lines.row_step

    def parts(even, odd, lines: Halves, how: Affine):
        if lines.fast == 0:
            every(even, odd, lines, careful, how.act, how)
        elif how.act == NONE:
            every(even, odd, lines, fast, NONE, how)
        elif how.act == RELU:
            every(even, odd, lines, fast, RELU, how)
        elif how.act == CLIP:
            every(even, odd, lines, fast, CLIP, how)
        else:
            every(even, odd, lines, fast, how.act, how)

    return outline(f"et_parts_{S.name}", parts)


@functools.cache
def halved_fill(S: Storage):
    """Function that packs a chunk of channels, for windows that are halved."""
    parts, fetch = _parts(S), fetch_ahead(S)

    @inline
    def bank(even, odd, source, plane, tile, count, low, stride, how):
        """`count` rows of lines [row][image] of the input rows low, low + stride, ..., zero outside
        the map; `plane` is the first image's first element."""
        h, wd, step, line = source.height, source.width, pitch_of(tile), tile.columns
        down, area = valid_range(low, stride, h, count), source.channels * h * wd
        nothing_at(odd, down.first * step)
        nothing_at(even, down.first * step)
        last = plane + (tile.images - 1) * area + (h - 1) * wd  # whole vectors of it are read
        fast = 1 if last + 2 * ceil_div(line, WIDTH) * WIDTH <= source.size else 0
        at, rows, begin = plane + (low + down.first * stride) * wd, down.last - down.first, 4 * step
        begin, end = begin * down.first, begin * down.last
        x, size, images = source.at, source.size, tile.images
        lines = Halves(x, size, at, rows, stride * wd, images, area, wd, line, fast)
        parts(even + begin, odd + begin, lines, how)
        nothing_at(odd + end, (count - down.last) * step)
        nothing_at(even + end, (count - down.last) * step)

    def fill(
        panel,
        source: Map,
        first,
        channels,
        tile: Tile,
        window: Window,
        prologue: Prologue,
        ahead: Ahead,
    ):
        """Arguments as of fast_pack.panel_fill."""
        rows, columns, stride = window.rows, window.columns, window.row_stride
        pitch, count = pitch_of(tile), tile.rows + window.extra
        region, floats = 4 * tile_region(window, tile), window.banks * count * pitch
        middle = -columns.low
        after = 1 if columns.taps > 1 else 0
        for i in range(channels):
            how = affine_of(prologue, first + i, source.channels)
            if how.norm == 0:  # changes no bit
                how = Affine(0, ONE, MINUS_ZERO, how.act, how.lo, how.hi)
            plane = (tile.image0 * source.channels + first + i) * source.height * source.width
            fetch(source, plane + tile.row0 * stride * source.width, tile, ahead)
            target = panel + i * columns.taps * region
            even, odd = target + middle * region, target + (middle + after) * region
            for b in range(window.banks):
                low, part = tile.row0 * stride + rows.low + b * rows.distance, 4 * b * count * pitch
                bank(even + part, odd + part, source, plane, tile, count, low, stride, how)
            for p in range(columns.taps):
                shift = (columns.low + p) >> 1
                if shift != 0:
                    of = odd if (columns.low + p) & 1 != 0 else even
                    moved(target + p * region, of, shift, floats, tile.columns)

    return outline(f"et_halved_{S.name}", fill)
