"""Packs panels whose tiles hold whole lines of the map, for any number of tap columns.

The tap column without shift is loaded, converted and normalised. The others are copies of it,
shifted along the lines, with zeros beyond the ends of lines.
"""

import functools

from ..language.fused_activation import NONE, RELU, act_value
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage, div, mod
from ..language.vector import WIDTH, loads, loads_first, stores, vsplat
from .fast_tile import pitch_of
from .pack_parts import Way, moved, zeros

_vst = stores(FP32)


@inline
def _suits(tile, source, window, prologue):
    """Whether a tile holds whole lines and one of its tap columns has no shift."""
    columns = window.columns
    low, high = columns.low, columns.low + (columns.taps - 1) * columns.distance
    if window.column_stride != 1 or tile.columns != source.width or low > 0 or high < 0:
        return False
    near = -low <= WIDTH and high <= WIDTH
    return near and (low == 0 or mod(-low, columns.distance) == 0)


@inline
def _centre(columns):
    """The tap column without shift."""
    return div(-columns.low, columns.distance) if columns.low != 0 else 0


@functools.cache
def _span(S: Storage):
    """Inline function that reads a run of elements."""
    vld, vfirst = loads(S), loads_first(S)

    @inline
    def span(target, source, offset, count, how):
        """target[j] = element offset + j of the map, transformed by `how`, j < count; up to 15 more
        are written."""
        x, act = source.address, how.act
        a, b, j = vsplat(how.scale), vsplat(how.shift), 0
        if how.norm != 0 and act == RELU:
            while j + WIDTH <= count:
                v = fma(vld(x, offset + j), a, b)
                _vst(target, j, act_value(RELU, v, how.lo, how.hi), WIDTH)
                j += WIDTH
        elif how.norm == 0 and act == NONE:
            while j + WIDTH <= count:
                _vst(target, j, vld(x, offset + j), WIDTH)
                j += WIDTH
        while j < count:
            is_full = offset + j + WIDTH <= source.size
            v = vld(x, offset + j) if is_full else vfirst(x, offset + j, count - j)
            if how.norm != 0:
                v = fma(v, a, b)
            _vst(target, j, act_value(act, v, how.lo, how.hi), WIDTH)
            j += WIDTH

    return span


def _bank(S: Storage):
    span, vld = _span(S), loads(S)

    @inline
    def short_line(target, x, offset, how):
        v = vld(x, offset)
        if how.norm != 0:
            v = fma(v, how.scale, how.shift)
        if how.act == RELU:
            v = act_value(RELU, v, how.lo, how.hi)
        elif how.act != NONE:
            v = act_value(how.act, v, how.lo, how.hi)
        _vst(target, 0, v, WIDTH)

    @inline
    def bank(to, source, tile, window, how):
        """Write the lines of the tap column without shift, zero outside the map."""
        h, wd, images, stride = source.height, source.width, tile.images, window.row_stride
        rows, low, plane = tile.rows + window.extra, to.low, to.plane
        map_size, line, step = source.channels * h * wd, images * wd, 4 * images * wd
        target = to.target
        if stride == 1 and images == 1:
            top = min(max(-low, 0), rows)
            bottom = max(min(h - low, rows), top)
            zeros(target, top * line)
            inside = target + top * step
            span(inside, source, plane + (low + top) * wd, (bottom - top) * line, how)
            zeros(target + bottom * step, (rows - bottom) * line)
            return
        short = wd <= WIDTH and plane + (images - 1) * map_size + h * wd + WIDTH <= source.size
        for row in range(rows):
            y = low + row * stride
            offset = plane + y * wd
            if y < 0 or y >= h:
                zeros(target, line)
            elif short:
                for image in range(images):
                    short_line(
                        target + 4 * image * wd, source.address, offset + image * map_size, how
                    )
            else:
                for image in range(images):
                    span(target + 4 * image * wd, source, offset + image * map_size, wd, how)
            target += step

    return bank


@inline
def _finish(target, region, centre, tile, window):
    """Write the other tap columns."""
    columns = window.columns
    floats = window.banks * (tile.rows + window.extra) * pitch_of(tile)
    for p in range(columns.taps):
        if p != centre:
            shift = columns.low + p * columns.distance
            moved(target + p * region, target + centre * region, shift, floats, tile.columns)


lines = Way("lines", _suits, _bank, _centre, _finish)
