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
from llvmlite import ir
from numba import types

from ..language.act import NONE, ONE, RELU, ZERO
from ..language.inlining import inline
from ..language.number import fused
from ..language.prim import FP32, I32, Storage, element
from ..language.vector import (
    V16,
    VECTOR,
    WIDTH,
    constant,
    define,
    loads,
    loads_first,
    shuffle,
    splat,
    stores,
    vsplat,
)
from .calls import outline
from .fast_lines import affine_of, fetch_ahead
from .fast_tile import tile_region
from .records import Affine, Ahead, Map, Prologue, Tile, Window

_vst = stores(FP32)
MINUS_ZERO = np.float32(-0.0)
_HALF = 8  # floats of a line of which a vector has two
_PLACES = ir.VectorType(I32, WIDTH)
_LANES = ir.Constant(_PLACES, list(range(WIDTH)))


def _wrapped(builder, places, width):
    """Places less than 2 * width as those in lines of this width."""
    less = builder.sub(places, splat(builder, builder.trunc(width, I32)))
    return builder.select(builder.icmp_unsigned("<", less, places), less, places)


def _moved_on(builder, args):
    """(places in a line, by how many, width) -> those later; int32 under the name of floats."""
    places, step, width = args
    places = builder.add(builder.bitcast(places, _PLACES), splat(builder, builder.trunc(step, I32)))
    return builder.bitcast(_wrapped(builder, places, width), VECTOR)


def _later(builder, args):
    """(vector before, vector, places): one lane later, 0 at place 0."""
    before, value, places = args
    first = builder.icmp_unsigned(
        "==", builder.bitcast(places, _PLACES), ir.Constant(_PLACES, None)
    )
    moved = shuffle(builder, before, value, range(WIDTH - 1, 2 * WIDTH - 1))
    return builder.select(first, constant(0.0), moved)


def _sooner(builder, args):
    """(vector, vector after, places, width): one lane sooner, 0 at the last place."""
    value, after, places, width = args
    last = splat(builder, builder.trunc(builder.sub(width, width.type(1)), I32))
    end = builder.icmp_unsigned("==", builder.bitcast(places, _PLACES), last)
    moved = shuffle(builder, value, after, range(1, WIDTH + 1))
    return builder.select(end, constant(0.0), moved)


def _prologue(builder, args):
    """(value, scale, shift, act): as a prologue without or with RELU changes it, without a branch.

    Where nothing is normalised the scale is 1 and the shift -0, which change no bit.
    """
    value, scale, shift, act = args
    value = fused(builder, value, splat(builder, scale), splat(builder, shift))
    positive = builder.fcmp_unordered(">", value, constant(0.0))
    kept = splat(builder, builder.icmp_unsigned("!=", act, act.type(RELU)))
    return builder.select(builder.or_(positive, kept), value, constant(0.0))


_i64 = types.int64
_changed = define(V16(V16, types.float32, types.float32, _i64), _prologue)
_first_places = define(V16(), lambda b, args: b.bitcast(_LANES, VECTOR))
_next_places = define(V16(V16, _i64, _i64), _moved_on)
_left_of, _right_of = define(V16(V16, V16, V16), _later), define(V16(V16, V16, V16, _i64), _sooner)


@functools.cache
def _pairs(S: Storage):
    """(address, index, other index) -> eight elements from each of them."""

    def emit(builder, args):
        places = [element(builder, args[0], at, S.nbytes) for at in args[1:]]
        parts = [builder.load(place, typ=S.vector(_HALF), align=S.nbytes) for place in places]
        return S.widen(builder, shuffle(builder, *parts, range(WIDTH)))

    return define(V16(_i64, _i64, _i64), emit)


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
    vld, vfirst, pair = loads(S), loads_first(S), _pairs(S)

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
        places = _first_places()
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
