"""Packing of panels (conv/fast_tile.py) of up to three neighbouring columns, as windows 3 wide and
the input gradients of those with a stride of 2 read them.

The rows of a tile follow each other in the map. A vector of them is read, converted and normalised
once; the column to the left is the same one lane later, that to the right one lane sooner, with
zeros where lines begin and end. Of maps 8 wide, a vector is a line each of two images. A side that
a window does not read has the place of the column in the middle, which is written last.
"""

import functools
from typing import NamedTuple

import numpy as np

from ..language.act import NONE, ONE, RELU, ZERO
from ..language.calls import outline
from ..language.inlining import inline
from ..language.number import fma, shuffled, where
from ..language.prim import FP32, Storage
from ..language.vector import (
    WIDTH,
    ints,
    loads,
    loads_first,
    loads_two,
    numbers16,
    stores,
    unsigned,
    vsplat,
)
from .fast_lines import affine_of, fetch_ahead
from .fast_tile import tile_region
from .records import Affine, Ahead, Map, Prologue, Tile, Window

_vst = stores(FP32)
MINUS_ZERO = np.float32(-0.0)
_HALF = 8  # floats of a line of which a vector has two
_lane_later = shuffled(tuple(range(WIDTH - 1, 2 * WIDTH - 1)))
_lane_sooner = shuffled(tuple(range(1, WIDTH + 1)))


@inline
def _next_places(places, step, width):
    """Places in a line `step` later; both are less than the width, which is 2 at least."""
    later = unsigned(places + step)
    less = later - width
    return ints(where(less < later, less, later))


@inline
def _left_of(before, value, places):
    """One lane later, 0 at place 0; `before` is the vector before."""
    return where(places == 0, ZERO, _lane_later(before, value))


@inline
def _right_of(value, after, places, width):
    """One lane sooner, 0 at the last place; `after` is the vector after."""
    return where(places == width - 1, ZERO, _lane_sooner(value, after))


@inline
def _changed(value, scale, shift, act):
    """As a prologue without or with RELU changes it, without a branch.

    If nothing is normalised the scale is 1 and the shift -0, which change no bit.
    """
    value = fma(value, scale, shift)
    return where(~(value <= ZERO) | (act != RELU), value, ZERO)


@inline
def has_sides(tile, source, window, prologue):
    """Whether a tile's panel has columns of whole lines, none more than one to a side."""
    if prologue.act != NONE and prologue.act != RELU:
        return False
    rows, columns = window.rows, window.columns
    if window.row_stride * window.column_stride * window.banks != 1 or tile.columns != source.width:
        return False
    last = columns.low + columns.taps - 1
    if columns.low < -1 or columns.low > 0 or last < 0 or last > 1 or source.width < _HALF:
        return False
    if columns.taps > 1 and columns.distance != 1:
        return False
    paired = source.width == _HALF and tile.images & 1 == 0
    return rows.taps == window.extra + 1 and (tile.images == 1 or paired)


@inline
def _nothing(to, first, count):
    """`count` zeros, and up to 15 more, from float `first` of the columns on."""
    zero = vsplat(ZERO)
    for j in range(first, first + count, WIDTH):
        _vst(to.left, j, zero, WIDTH)
        _vst(to.right, j, zero, WIDTH)
        _vst(to.middle, j, zero, WIDTH)


class _To(NamedTuple):
    """Where columns of a channel lie."""

    left: int
    middle: int
    right: int


@functools.cache
def _columns(S: Storage):
    """Inline functions that write three columns: of one run of a map, of lines of pairs of maps."""
    vld, vfirst, pair = loads(S), loads_first(S), loads_two(S)

    @inline
    def run(to, source, at, count, places, how):
        """Elements from `at` on, `count` of them, and up to 15 more."""
        wd, x, size = source.width, source.at, source.size
        step = WIDTH if wd >= WIDTH else WIDTH - wd  # lines of 8 to 15: one further
        before, j = vsplat(ZERO), 0
        v = vld(x, at) if at + WIDTH <= size else vfirst(x, at, count)
        v = _changed(v, how.scale, how.shift, how.act)
        while j < count:
            after, further = vsplat(ZERO), at + j + WIDTH
            if j + WIDTH < count:
                whole = further + WIDTH <= size
                after = vld(x, further) if whole else vfirst(x, further, count - j - WIDTH)
                after = _changed(after, how.scale, how.shift, how.act)
            _vst(to.left, j, _left_of(before, v, places), WIDTH)
            _vst(to.right, j, _right_of(v, after, places, wd), WIDTH)
            _vst(to.middle, j, v, WIDTH)
            before, v, j = v, after, j + WIDTH
            places = _next_places(places, step, wd)

    @inline
    def lines(to, source, at, images, rows, places, how):
        """`rows` of lines of 8, each of so many images, an even number."""
        plane = source.channels * source.height * _HALF
        none, j = vsplat(ZERO), 0
        for row in range(rows):
            first = at + row * _HALF
            for _ in range(images >> 1):
                v = pair(source.at, first, first + plane)
                v = _changed(v, how.scale, how.shift, how.act)
                _vst(to.left, j, _left_of(none, v, places), WIDTH)
                _vst(to.right, j, _right_of(v, none, places, _HALF), WIDTH)
                _vst(to.middle, j, v, WIDTH)
                first, j = first + 2 * plane, j + WIDTH

    @inline
    def columns(to, source, at, images, rows, places, how):
        if images == 1:
            run(to, source, at, rows * source.width, places, how)
        else:
            lines(to, source, at, images, rows, places, how)

    return columns


@functools.cache
def sides_fill(S: Storage):
    """Function that packs a chunk of channels, for tiles that `has_sides`."""
    columns, fetch = _columns(S), fetch_ahead(S)

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
        h, wd, count = source.height, source.width, tile.rows + window.extra
        pitch, region, low = tile.images * wd, 4 * tile_region(window, tile), window.rows.low
        before, after = -window.columns.low * region, (window.columns.taps - 1) * region
        low += tile.row0
        top = min(max(-low, 0), count)
        bottom = max(min(h - low, count), top)
        places = numbers16()
        if wd < WIDTH:
            places = _next_places(places, 0, wd)
        for i in range(channels):
            how = affine_of(prologue, first + i, source.channels)
            if how.norm == 0:
                how = Affine(0, ONE, MINUS_ZERO, how.act, how.lo, how.hi)
            plane = (tile.image0 * source.channels + first + i) * h * wd
            fetch(source, plane + tile.row0 * wd, tile, ahead)
            to = _To(panel, panel + before, panel + after)
            _nothing(to, 0, top * pitch)
            if top < bottom:
                at, step = plane + (low + top) * wd, 4 * top * pitch
                inside = _To(to.left + step, to.middle + step, to.right + step)
                columns(inside, source, at, tile.images, bottom - top, places, how)
            _nothing(to, bottom * pitch, (count - bottom) * pitch)
            panel += after + region

    return outline(f"et_sides_{S.name}", fill)
