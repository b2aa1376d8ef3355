"""Packs panels of up to three neighbouring tap columns, whose tiles hold whole lines of the map.

Windows three columns wide read such panels, and so do their input gradients with stride 2. The
lines of a tile are contiguous in the map, so a vector of pixels is loaded, converted and normalised
once, and written three times:

    middle  as it is
    left    one lane later: each pixel's left neighbour, 0 at the start of a line
    right   one lane sooner: its right neighbour, 0 at the end of a line

If a window has no left or no right column, that one is written to the address of the middle, which
is written last. In maps 8 columns wide, a vector is one line of each of two images.
"""

import functools
from typing import NamedTuple

from ..language.fused_activation import NONE, RELU, ZERO
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
from .fast_tile import pitch_of
from .pack_parts import Way, always

_vst = stores(FP32)
_HALF = 8  # floats of a line, if a vector holds two lines
_lane_later = shuffled(tuple(range(WIDTH - 1, 2 * WIDTH - 1)))
_lane_sooner = shuffled(tuple(range(1, WIDTH + 1)))


@inline
def _next_places(places, step, width):
    """Positions in their lines `step` further; places + step < 2 * width, and width >= 2."""
    later = unsigned(places + step)
    less = later - width
    return ints(where(less < later, less, later))


@inline
def _left_of(before, value, places):
    """The vector one lane later, 0 at position 0 of a line; `before` is the previous vector."""
    return where(places == 0, ZERO, _lane_later(before, value))


@inline
def _right_of(value, after, places, width):
    """The vector one lane sooner, 0 at the last position; `after` is the next vector."""
    return where(places == width - 1, ZERO, _lane_sooner(value, after))


@inline
def _changed(value, scale, shift, act):
    """Apply a prologue with activation NONE or RELU, without a branch.

    If nothing is normalised, the scale is 1 and the shift -0, which change no bits.
    """
    value = fma(value, scale, shift)
    return where(~(value <= ZERO) | (act != RELU), value, ZERO)


@inline
def _suits(tile, source, window, prologue):
    """Whether a tile's panel has tap columns of whole lines, shifted by at most one column."""
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


class _To(NamedTuple):
    """Addresses of a channel's three tap columns."""

    left: int
    middle: int
    right: int


@inline
def _zeros(to, first, count):
    """Write `count` zeros in each column, from float `first` on."""
    zero = vsplat(ZERO)
    for j in range(first, first + count, WIDTH):
        _vst(to.left, j, zero, WIDTH)
        _vst(to.right, j, zero, WIDTH)
        _vst(to.middle, j, zero, WIDTH)


@functools.cache
def _columns(S: Storage):
    """Inline function that writes three columns: of a run of a map, or of lines of pairs of
    maps."""
    vld, vfirst, pair = loads(S), loads_first(S), loads_two(S)

    @inline
    def run(to, source, offset, count, places, how):
        """Write elements from `offset` on, `count` of them, and up to 15 more."""
        wd, x, size = source.width, source.address, source.size
        step = WIDTH if wd >= WIDTH else WIDTH - wd  # lines of 8 to 15: a line further
        before, j = vsplat(ZERO), 0
        v = vld(x, offset) if offset + WIDTH <= size else vfirst(x, offset, count)
        v = _changed(v, how.scale, how.shift, how.act)
        while j < count:
            after, further = vsplat(ZERO), offset + j + WIDTH
            if j + WIDTH < count:
                is_full = further + WIDTH <= size
                after = vld(x, further) if is_full else vfirst(x, further, count - j - WIDTH)
                after = _changed(after, how.scale, how.shift, how.act)
            _vst(to.left, j, _left_of(before, v, places), WIDTH)
            _vst(to.right, j, _right_of(v, after, places, wd), WIDTH)
            _vst(to.middle, j, v, WIDTH)
            before, v, j = v, after, j + WIDTH
            places = _next_places(places, step, wd)

    @inline
    def lines(to, source, offset, images, rows, places, how):
        """Write `rows` rows of lines of 8, for `images` images, an even number."""
        plane = source.channels * source.height * _HALF
        none, j = vsplat(ZERO), 0
        for row in range(rows):
            first = offset + row * _HALF
            for _ in range(images >> 1):
                v = pair(source.address, first, first + plane)
                v = _changed(v, how.scale, how.shift, how.act)
                _vst(to.left, j, _left_of(none, v, places), WIDTH)
                _vst(to.right, j, _right_of(v, none, places, _HALF), WIDTH)
                _vst(to.middle, j, v, WIDTH)
                first, j = first + 2 * plane, j + WIDTH

    @inline
    def columns(to, source, offset, images, rows, places, how):
        if images == 1:
            run(to, source, offset, rows * source.width, places, how)
        else:
            lines(to, source, offset, images, rows, places, how)

    return columns


def _bank(S: Storage):
    columns = _columns(S)

    @inline
    def bank(to, source, tile, window, how):
        h, wd, count, pitch = source.height, source.width, tile.rows + window.extra, pitch_of(tile)
        top = min(max(-to.low, 0), count)
        bottom = max(min(h - to.low, count), top)
        places = numbers16()
        if wd < WIDTH:
            places = _next_places(places, 0, wd)
        middle = to.target - window.columns.low * to.region
        last = to.target + (window.columns.taps - 1) * to.region
        _zeros(_To(to.target, middle, last), 0, top * pitch)
        if top < bottom:
            offset, step = to.plane + (to.low + top) * wd, 4 * top * pitch
            inside = _To(to.target + step, middle + step, last + step)
            columns(inside, source, offset, tile.images, bottom - top, places, always(how))
        _zeros(_To(to.target, middle, last), bottom * pitch, (count - bottom) * pitch)

    return bank


three_columns = Way("three_columns", _suits, _bank, one_bank=True)
