"""Packs panels of windows with a column stride of two, whose tiles hold whole lines of the map.

A line of the map is loaded, converted and normalised once, and split: its even columns are one tap
column of the panel, its odd columns the next. The other tap columns are copies of these two,
shifted along the lines.
"""

import functools
from typing import NamedTuple

from ..language.calls import outline
from ..language.fused_activation import CLIP, NONE, RELU, ZERO, act_value
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
from .fast_tile import ceil_div, pitch_of, valid_range
from .pack_parts import Way, always, moved, zeros
from .records import Affine

_vst = stores(FP32)
_MOST = 16  # tap columns


def _every_other(first: int):
    """(vector, next vector) -> lanes first, first + 2, ... of both."""
    places = range(first, 2 * WIDTH, 2)
    return define(V16(V16, V16), lambda builder, args: shuffle(builder, *args, places))


_evens, _odds = _every_other(0), _every_other(1)


class Halves(NamedTuple):
    """Source of a bank's lines that are inside the map: `images` lines for each of `rows` rows.

    Line (row, image) begins at element offset + row * row_step + image * image_step of x and has
    `width` columns; each half has room for `columns`. fast: whole vectors of all lines end within
    x.
    """

    x: int
    size: int
    offset: int
    rows: int
    row_step: int
    images: int
    image_step: int
    width: int
    columns: int
    fast: int


@inline
def _suits(tile, source, window, prologue):
    """Whether windows are two columns apart and all tap columns of a tile's panel are copies of
    two: nothing to the right of a tile's columns is in the map."""
    columns = window.columns
    if window.column_stride != 2 or tile.column0 != 0 or 2 * tile.columns < source.width:
        return False
    if columns.taps == 1:
        return columns.low == 0
    first_odd = 1 - columns.low
    return columns.distance == 1 and columns.low <= 0 and first_odd < columns.taps <= _MOST


@functools.cache
def _parts(S: Storage):
    """Function that splits lines into their even columns at `even` and their odd columns at `odd`;
    if both are the same address, the even columns remain."""
    vld, vfirst = loads(S), loads_first(S)

    @inline
    def fast(lines, offset):
        return vld(lines.x, offset)

    @inline
    def careful(lines, offset):
        return vfirst(lines.x, offset, lines.size - offset)

    @inline
    def every(even, odd, lines, read, act, how):
        width, columns, offset = lines.width, lines.columns, lines.offset
        scale, shift = vsplat(how.scale), vsplat(how.shift)
        for _ in range(lines.rows):
            first = offset
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
            offset += lines.row_step

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


@inline
def _odd(even, region, window):
    """Address for the odd columns of lines: the tap column after the even ones."""
    return even + region if window.columns.taps > 1 else even


def _bank(S: Storage):
    parts = _parts(S)

    @inline
    def bank(to, source, tile, window, how):
        even, odd = to.target, _odd(to.target, to.region, window)
        h, wd, step, line = source.height, source.width, pitch_of(tile), tile.columns
        count, stride, plane = tile.rows + window.extra, window.row_stride, to.plane
        down, area = valid_range(to.low, stride, h, count), source.channels * h * wd
        zeros(odd, down.first * step)
        zeros(even, down.first * step)
        last = plane + (tile.images - 1) * area + (h - 1) * wd  # read in whole vectors
        fast = 1 if last + 2 * ceil_div(line, WIDTH) * WIDTH <= source.size else 0
        offset, rows = plane + (to.low + down.first * stride) * wd, down.last - down.first
        begin, end = 4 * step * down.first, 4 * step * down.last
        x, size, images = source.address, source.size, tile.images
        lines = Halves(x, size, offset, rows, stride * wd, images, area, wd, line, fast)
        parts(even + begin, odd + begin, lines, always(how))
        zeros(odd + end, (count - down.last) * step)
        zeros(even + end, (count - down.last) * step)

    return bank


@inline
def _finish(target, region, middle, tile, window):
    """Write the other tap columns."""
    even = target + middle * region
    odd = _odd(even, region, window)
    floats = window.banks * (tile.rows + window.extra) * pitch_of(tile)
    for p in range(window.columns.taps):
        shift = (window.columns.low + p) >> 1
        if shift != 0:
            source = odd if (window.columns.low + p) & 1 != 0 else even
            moved(target + p * region, source, shift, floats, tile.columns)


even_odd = Way("even_odd", _suits, _bank, inline(lambda columns: -columns.low), _finish)
