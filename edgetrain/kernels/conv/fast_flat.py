"""Packing of panels (conv/fast_tile.py) that hold each pixel once: one tap, no stride, no shift.

So pointwise convolutions read their input, and weight gradients those of the output. Of small maps
a channel is a vector or two, less work than finding out where lines begin and end.
"""

import functools

from ..language.act import NONE, act_value
from ..language.calls import outline
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage
from ..language.vector import WIDTH, loads, loads_first, stores, vsplat
from .fast_lines import affine_of, fetch_ahead
from .fast_tile import tile_region
from .records import Ahead, Map, Prologue, Tile, Window

_vst = stores(FP32)
_FETCHED = 64  # pixels of a run from which on the next tile's are fetched early


@inline
def is_flat(tile: Tile, source: Map, window: Window):
    """Whether a tile's pixels are one run of each image, all of them in it and read as it is."""
    rows, columns = window.rows, window.columns
    if rows.taps * columns.taps * window.row_stride * window.column_stride != 1:
        return False
    if rows.low != 0 or columns.low != 0 or window.banks != 1 or window.extra != 0:
        return False
    if tile.row0 + tile.rows > source.height or tile.column0 + tile.columns > source.width:
        return False
    return tile.rows == 1 or (tile.images == 1 and tile.columns == source.width)


@functools.cache
def flat_fill(S: Storage):
    """Function that packs a chunk of channels, for tiles that are flat."""
    vld, vfirst, fetch = loads(S), loads_first(S), fetch_ahead(S)

    @inline
    def copies(target, x, at, step, images, count):
        """target[image][j] = x[at + image * step + j]."""
        if count <= WIDTH:
            for image in range(images):
                _vst(target, image * count, vld(x, at + image * step), WIDTH)
            return
        for _ in range(images):
            for j in range(0, count, WIDTH):
                _vst(target, j, vld(x, at + j), WIDTH)
            target += 4 * count
            at += step

    @inline
    def changes(target, source, at, step, images, count, how):
        """The same through a prologue, or where a vector may not end behind the map."""
        a, b = vsplat(how.scale), vsplat(how.shift)
        for _ in range(images):
            for j in range(0, count, WIDTH):
                whole = at + j + WIDTH <= source.size
                v = vld(source.at, at + j) if whole else vfirst(source.at, at + j, count - j)
                if how.norm != 0:
                    v = fma(v, a, b)
                _vst(target, j, act_value(how.act, v, how.lo, how.hi), WIDTH)
            target += 4 * count
            at += step

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
        region, count, images = 4 * tile_region(window, tile), tile.rows * tile.columns, tile.images
        plane = source.height * source.width
        step = source.channels * plane
        at = (tile.image0 * source.channels + first) * plane
        at += tile.row0 * source.width + tile.column0
        plain = prologue.stat == 0 and prologue.act == NONE
        end = at + (channels - 1) * plane + (images - 1) * step + count
        if end + WIDTH > source.size:
            plain = False
        for i in range(channels):
            if count >= _FETCHED:
                fetch(source, at, tile, ahead)
            if plain:
                copies(panel, source.at, at, step, images, count)
            else:
                how = affine_of(prologue, first + i, source.channels)
                changes(panel, source, at, step, images, count, how)
            panel += region
            at += plane

    return outline(f"et_flat_{S.name}", fill)
