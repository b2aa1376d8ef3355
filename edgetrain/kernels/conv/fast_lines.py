"""Packing of panels (conv/fast_tile.py) whose tiles hold whole lines of the input.

The tap column without shift is read, converted and normalised; the others are copies of it, each
moved along the lines and zero where it leaves them.
"""

import functools

from ..language.act import NONE, ONE, RELU, ZERO, act_value, norm_scale, norm_shift
from ..language.calls import outline
from ..language.inlining import inline
from ..language.number import alike, fma, where
from ..language.prim import FP32, Storage, div, mod
from ..language.vector import (
    WIDTH,
    loads,
    loads_first,
    numbers16,
    prefetch,
    stores,
    unsigned,
    vkeep,
    vsplat,
)
from .fast_tile import pitch_of, tile_region
from .records import Affine, Ahead, Map, Prologue, Tile, Window

_vld, _vst = loads(FP32), stores(FP32)


@inline
def _less(place, width):
    less = place - width
    return where(less >= 0, less, place)


@inline
def vinside(value, start, width, shift):
    """Lanes whose place + shift lies in their line, else 0.

    The place of lane i is start + i modulo width, for start < width.
    """
    place = numbers16() + start
    whole = alike(place, width)
    place = _less(_less(_less(place, whole << 4), whole << 3), whole << 2)
    place = _less(_less(place, whole << 1), whole)
    return where(unsigned(place + shift) < unsigned(whole), value, ZERO)


@inline
def moved(target, middle, shift, count, width):
    """target[j] = middle[j + shift], 0 where that is in another line; count floats in all."""
    head, tail = max(-shift, 0), WIDTH - max(shift, 0)
    if mod(width, WIDTH) == 0:
        for line in range(0, count, width):
            low = head
            for j in range(line, line + width - WIDTH, WIDTH):
                _vst(target, j, vkeep(_vld(middle, j + shift), low, WIDTH), WIDTH)
                low = 0
            j = line + width - WIDTH
            _vst(target, j, vkeep(_vld(middle, j + shift), low, tail), WIDTH)
    elif mod(WIDTH, width) == 0:
        for j in range(0, count, WIDTH):
            _vst(target, j, vinside(_vld(middle, j + shift), 0, width, shift), WIDTH)
    else:
        start, step = 0, mod(WIDTH, width)
        for j in range(0, count, WIDTH):
            _vst(target, j, vinside(_vld(middle, j + shift), start, width, shift), WIDTH)
            start += step
            start -= width if start >= width else 0


@inline
def nothing_at(target, count):
    """`count` zeros and up to 15 more."""
    zero = vsplat(ZERO)
    for j in range(0, count, WIDTH):
        _vst(target, j, zero, WIDTH)


@functools.cache
def _span(S: Storage):
    """Inline function that reads a run of elements."""
    vld, vfirst = loads(S), loads_first(S)

    @inline
    def span(target, source, at, count, how):
        """target[j] = element at + j of the map, as `how` says, j < count; up to 15 more are
        written."""
        x, act = source.at, how.act
        a, b, j = vsplat(how.scale), vsplat(how.shift), 0
        if how.norm != 0 and act == RELU:
            while j + WIDTH <= count:
                v = fma(vld(x, at + j), a, b)
                _vst(target, j, act_value(RELU, v, how.lo, how.hi), WIDTH)
                j += WIDTH
        elif how.norm == 0 and act == NONE:
            while j + WIDTH <= count:
                _vst(target, j, vld(x, at + j), WIDTH)
                j += WIDTH
        while j < count:
            whole = at + j + WIDTH <= source.size
            v = vld(x, at + j) if whole else vfirst(x, at + j, count - j)
            if how.norm != 0:
                v = fma(v, a, b)
            _vst(target, j, act_value(act, v, how.lo, how.hi), WIDTH)
            j += WIDTH

    return span


@functools.cache
def _bank(S: Storage):
    """Inline function that fills a bank of the tap column without shift."""
    span, vld = _span(S), loads(S)

    @inline
    def short_line(target, x, at, how):
        v = vld(x, at)
        if how.norm != 0:
            v = fma(v, how.scale, how.shift)
        if how.act == RELU:
            v = act_value(RELU, v, how.lo, how.hi)
        elif how.act != NONE:
            v = act_value(how.act, v, how.lo, how.hi)
        _vst(target, 0, v, WIDTH)

    @inline
    def bank(target, source, plane, images, rows, low, stride, how):
        """`rows` of lines [row][image] of the input rows low, low + stride, ..., zero outside the
        map; `plane` is the first image's first element."""
        h, wd = source.height, source.width
        map_size, line, step = source.channels * h * wd, images * wd, 4 * images * wd
        if stride == 1 and images == 1:
            top = min(max(-low, 0), rows)
            bottom = max(min(h - low, rows), top)
            nothing_at(target, top * line)
            inside = target + top * step
            span(inside, source, plane + (low + top) * wd, (bottom - top) * line, how)
            nothing_at(target + bottom * step, (rows - bottom) * line)
            return
        short = wd <= WIDTH and plane + (images - 1) * map_size + h * wd + WIDTH <= source.size
        for row in range(rows):
            y = low + row * stride
            at = plane + y * wd
            if y < 0 or y >= h:
                nothing_at(target, line)
            elif short:
                for image in range(images):
                    short_line(target + 4 * image * wd, source.at, at + image * map_size, how)
            else:
                for image in range(images):
                    span(target + 4 * image * wd, source, at + image * map_size, wd, how)
            target += step

    return bank


@inline
def affine_of(prologue, channel, channels):
    """A prologue for one of the map's channels."""
    norm, scale, shift = 0, ONE, ZERO
    if prologue.stat != 0:
        norm = 1
        scale = norm_scale(prologue.stat, prologue.gamma, channel, channels)
        shift = norm_shift(prologue.stat, prologue.gamma, prologue.beta, channel, channels)
    return Affine(norm, scale, shift, prologue.act, prologue.lo, prologue.hi)


@functools.cache
def fetch_ahead(S: Storage):
    """Inline function that prefetches from element `at` of a plane on what the next tile reads."""
    nbytes = S.nbytes

    @inline
    def fetch(source, at, tile, ahead):
        for image in range(tile.images):
            first = at + image * source.channels * source.height * source.width + ahead.start
            for j in range(0, ahead.span * nbytes, 64):
                prefetch(source.at + first * nbytes + j)

    return fetch


@functools.cache
def lines_fill(S: Storage):
    """Function that packs a chunk of channels, for tiles that `holds_lines`."""
    bank, fetch = _bank(S), fetch_ahead(S)

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
        wd, rows, columns = source.width, window.rows, window.columns
        pitch, count = pitch_of(tile), tile.rows + window.extra
        region, floats = 4 * tile_region(window, tile), window.banks * count * pitch
        centre = div(-columns.low, columns.distance) if columns.low != 0 else 0
        for i in range(channels):
            how = affine_of(prologue, first + i, source.channels)
            plane = (tile.image0 * source.channels + first + i) * source.height * wd
            fetch(source, plane + tile.row0 * window.row_stride * wd, tile, ahead)
            target = panel + i * columns.taps * region
            for b in range(window.banks):
                low = tile.row0 * window.row_stride + rows.low + b * rows.distance
                here = target + centre * region + 4 * b * count * pitch
                bank(here, source, plane, tile.images, count, low, window.row_stride, how)
            for p in range(columns.taps):
                if p != centre:
                    shift = columns.low + p * columns.distance
                    moved(target + p * region, target + centre * region, shift, floats, wd)

    return outline(f"et_lines_{S.name}", fill)


@inline
def holds_lines(tile, width, window):
    """Whether a tile has whole lines and one of its tap columns no shift."""
    columns = window.columns
    low, high = columns.low, columns.low + (columns.taps - 1) * columns.distance
    if window.column_stride != 1 or tile.columns != width or low > 0 or high < 0:
        return False
    near = -low <= WIDTH and high <= WIDTH
    return near and (low == 0 or mod(-low, columns.distance) == 0)
