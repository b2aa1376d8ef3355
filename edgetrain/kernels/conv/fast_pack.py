"""Moving data between maps and the panels and sums of fast convolutions (conv/fast_tile.py).

Panels are written in rising order, so a vector store may spill past the end of a row.
"""

import functools

import numpy as np

from ..language.act import act_value
from ..language.calls import outline
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage, div, mod, to_float
from ..language.tile import gemm_columns
from ..language.vector import (
    WIDTH,
    loads,
    loads_first,
    stores,
    vinterleave,
    vkeep,
    vsplat,
)
from .fast_flat import flat_fill, is_flat
from .fast_halved import halved_fill, is_halved
from .fast_lines import affine_of, fetch_ahead, holds_lines, lines_fill
from .fast_sides import has_sides, sides_fill
from .fast_strided import is_strided, strided_fill
from .fast_tile import pitch_of, tile_region, valid_range
from .records import Affine, Ahead, Lines, Map, PixelClass, Prologue, Tile, Window

_vld, _vst, _ld, _st = loads(FP32), stores(FP32), FP32.ld, FP32.st


@inline
def first_of(target, channel, tile):
    """The first element of a channel in a tile's first image."""
    return (tile.image0 * target.channels + channel) * target.height * target.width


@functools.cache
def _line(S: Storage):
    """Inline functions that fill one row of a panel, the second at most a vector long."""
    vld, vld2, ld = loads(S), loads(S, 2), S.ld

    @inline
    def prologue(v, how):
        if how.norm != 0:
            v = fma(v, how.scale, how.shift)
        return act_value(how.act, v, how.lo, how.hi)

    @inline
    def short(target, lines, at, how):
        v = vld(lines.x, at) if lines.stride == 1 else vld2(lines.x, at)
        _vst(target, 0, vkeep(prologue(v, how), lines.columns.first, lines.columns.last), WIDTH)

    @inline
    def line(target, zero, lines, at, inside, how):
        """A line of the panel from element `at` on; inside: whether its row is in the map."""
        x, stride, count = lines.x, lines.stride, lines.columns.total
        first, last = (lines.columns.first, lines.columns.last) if inside else (count, count)
        j = 0
        while j < first:
            _vst(target, j, zero, WIDTH)
            j += WIDTH
        j = first
        while lines.fast != 0 and j < last:
            v = vld(x, at + j * stride) if stride == 1 else vld2(x, at + j * stride)
            _vst(target, j, prologue(v, how), WIDTH)
            j += WIDTH
        while j < last:
            z = ld(x, at + j * stride)
            if how.norm != 0:
                z = fma(z, how.scale, how.shift)
            _st(target, j, act_value(how.act, z, how.lo, how.hi))
            j += 1
        j = last
        while j < count:
            _vst(target, j, zero, WIDTH)
            j += WIDTH

    return line, short


@functools.cache
def _rows(S: Storage):
    """Function that fills the rows of one bank."""
    line, short = _line(S)

    def rows(
        target, nothing, lines: Lines, prologue: Prologue, scale: np.float32, shift: np.float32
    ):
        """Constants of the prologue show here: a record that `affine_of` returns hides them."""
        norm = 1 if prologue.stat != 0 else 0
        how = Affine(norm, scale, shift, prologue.act, prologue.lo, prologue.hi)
        zero, step = vsplat(to_float(nothing)), 4 * lines.columns.total
        columns, top, bottom = lines.columns, lines.rows.first, lines.rows.last
        is_short = lines.fast != 0 and columns.total <= WIDTH and columns.first < columns.last
        if is_short and lines.at + top * lines.row_step >= 0:
            for row in range(lines.rows.total):
                at = lines.at + row * lines.row_step
                for _ in range(lines.images):
                    if top <= row and row < bottom:
                        short(target, lines, at, how)
                    else:
                        _vst(target, 0, zero, WIDTH)
                    at += lines.image_step
                    target += step
            return
        for row in range(lines.rows.total):
            inside, at = top <= row and row < bottom, lines.at + row * lines.row_step
            for _ in range(lines.images):
                line(target, zero, lines, at, inside, how)
                at += lines.image_step
                target += step

    return outline(f"et_rows_{S.name}", rows)


@functools.cache
def _shifted_fill(S: Storage):
    """Inline function that packs a chunk of channels, each tap column from the map."""
    fill_rows, fetch = _rows(S), fetch_ahead(S)

    @inline
    def fill(panel, nothing, source, first, channels, tile, window, prologue, ahead):
        h, wd, rows, columns = source.height, source.width, window.rows, window.columns
        region, step = 4 * tile_region(window, tile), source.channels * h * wd
        count, row0, column0 = tile.rows + window.extra, tile.row0, tile.column0
        sy, sx = window.row_stride, window.column_stride
        for i in range(channels):
            how = affine_of(prologue, first + i, source.channels)
            plane = first_of(source, first + i, tile)
            end = plane + (tile.images - 1) * step + h * wd
            fast = 1 if sx <= 2 and end + 2 * WIDTH <= source.size else 0
            at = plane + row0 * sy * wd + column0 * sx
            fetch(source, at, tile, ahead)
            for p in range(columns.taps):
                offset = column0 * sx + columns.low + p * columns.distance
                across = valid_range(offset, sx, wd, tile.columns)
                target = panel + (i * columns.taps + p) * region
                for bank in range(window.banks):
                    low = row0 * sy + rows.low + bank * rows.distance
                    down = valid_range(low, sy, h, count)
                    x, at, line_step = source.at, plane + low * wd + offset, sy * wd
                    lines = Lines(x, at, line_step, step, tile.images, down, across, sx, fast)
                    fill_rows(target, nothing, lines, prologue, how.scale, how.shift)
                    target += 4 * count * pitch_of(tile)

    return fill


@functools.cache
def panel_fill(S: Storage):
    """Function that packs a chunk of channels into a panel."""
    fill_flat, fill_sides = flat_fill(S), sides_fill(S)
    fill_lines, fill_shifted = lines_fill(S), _shifted_fill(S)
    fill_halved, fill_strided = halved_fill(S), strided_fill(S)

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
        """Panel of the map's channels from `first` on, for a tile.

        `nothing` is 0, which the compiler must not know: it would call memset for rows of a few
        zeros.
        """
        if is_flat(tile, source, window):
            fill_flat(panel, source, first, channels, tile, window, prologue, ahead)
        elif has_sides(tile, source, window, prologue):
            fill_sides(panel, source, first, channels, tile, window, prologue, ahead)
        elif holds_lines(tile, source.width, window):
            fill_lines(panel, source, first, channels, tile, window, prologue, ahead)
        elif is_halved(tile, source, window):
            fill_halved(panel, source, first, channels, tile, window, prologue, ahead)
        elif is_strided(window):
            fill_strided(panel, nothing, source, first, channels, tile, window, prologue, ahead)
        else:
            fill_shifted(panel, nothing, source, first, channels, tile, window, prologue, ahead)

    return outline(f"et_panel_{S.name}", fill)


@functools.cache
def tile_store(S: Storage):
    """Function that stores the sums of one channel."""
    vlds, vst, ld, st = loads(S), stores(S), S.ld, S.st

    @inline
    def run(y, index, source, count, acc):
        for j in range(0, count, WIDTH):
            v = _vld(source, j)
            if acc == 0:
                vst(y, index + j, v, count - j)
            elif count - j >= WIDTH:
                vst(y, index + j, v + vlds(y, index + j), WIDTH)
            else:
                for i in range(j, count):
                    st(y, index + i, _ld(source, i) + ld(y, index + i))

    def store(target: Map, channel, source, tile: Tile, acc):
        """Sums, flat over the tile, (added) to the channel's maps."""
        first, width = first_of(target, channel, tile), target.width
        if tile.images == 1 and tile.columns == width:
            run(target.at, first + tile.row0 * width, source, tile.rows * width, acc)
        else:
            for row in range(tile.rows):
                for image in range(tile.images):
                    index = first + image * target.channels * target.height * width
                    index += (tile.row0 + row) * width + tile.column0
                    line = source + 4 * (row * tile.images + image) * tile.columns
                    run(target.at, index, line, tile.columns, acc)

    return outline(f"et_store_{S.name}", store)


@functools.cache
def class_store(S: Storage):
    """Function that stores one row class of one channel, the column classes alternating."""
    vfirst, vst, ld, st = loads_first(S), stores(S), S.ld, S.st

    @inline
    def put(y, index, v, left, acc):
        if left > 0:
            vst(y, index, v + vfirst(y, index, left) if acc != 0 else v, left)

    def store(target: Map, channel, source, tile: Tile, pixels: PixelClass, acc):
        """Pixel (row, column * sw + b) of the class (+)= map b at (row, column)."""
        y, wd, sw, map_bytes = target.at, target.width, pixels.sw, pixels.map_bytes
        count = min(tile.columns * sw, wd - tile.column0 * sw)
        first = first_of(target, channel, tile) + tile.column0 * sw
        image_step = target.channels * target.height * wd
        for row in range(tile.rows):
            iy = (tile.row0 + row) * pixels.sh + pixels.row
            if iy >= target.height:
                continue
            for image in range(tile.images):
                index = first + image * image_step + iy * wd
                at = source + 4 * (row * tile.images + image) * tile.columns
                if sw == 1:
                    for j in range(0, count, WIDTH):
                        put(y, index + j, _vld(at, j), count - j, acc)
                elif sw == 2:
                    for j in range(0, count, 2 * WIDTH):
                        even, odd = _vld(at, j >> 1), _vld(at + map_bytes, j >> 1)
                        put(y, index + j, vinterleave(even, odd, 0), count - j, acc)
                        further = index + j + WIDTH
                        put(y, further, vinterleave(even, odd, 1), count - j - WIDTH, acc)
                else:
                    for i in range(count):
                        total = _ld(at + mod(i, sw) * map_bytes, div(i, sw))
                        st(y, index + i, total + ld(y, index + i) if acc != 0 else total)

    return outline(f"et_store_classes_{S.name}", store)


@functools.cache
def classes_store(S: Storage):
    """Inline function that stores the sums of several channels, of one row class."""
    plain, alternating = tile_store(S), class_store(S)

    @inline
    def store(target, first, channels, sums, count, tile, pixels, acc):
        """`count` vectors of sums a channel, of `channels` from `first` on."""
        for i in range(channels):
            source = sums + i * count * 64
            if pixels.sh == 1 and pixels.sw == 1:
                plain(target, first + i, source, tile, acc)
            else:
                alternating(target, first + i, source, tile, pixels, acc)

    return store


@functools.cache
def weight_runs(W: Storage):
    """Function that copies runs of weights to float32."""
    vld, ld = loads(W), W.ld

    def copy(target, w, size, source, step, runs, pitch, count):
        """target[o][j] = w[source + o * step + j], j < count <= pitch, o < runs.

        Runs in target are `pitch` floats apart. Up to 15 floats after the last are overwritten;
        w has `size` elements.
        """
        for o in range(runs):
            at, j = source + o * step, 0
            while j < count and at + j + WIDTH <= size:
                _vst(target, j, vld(w, at + j), WIDTH)
                j += WIDTH
            while j < count:
                _st(target, j, ld(w, at + j))
                j += 1
            target += 4 * pitch

    return outline(f"et_weights_{W.name}", copy)


@inline
def set_row(target, value, count):
    """`count` vectors equal to `value`."""
    for v in range(count):
        _vst(target, v * WIDTH, value, WIDTH)


@functools.cache
def block_products(rows: int, vectors: int):
    """Inline function that multiplies a block of weights with every vector of a panel."""
    wide, single = gemm_columns(rows, vectors), gemm_columns(rows, 1)
    pair = gemm_columns(rows, 2) if vectors > 2 else wide

    @inline
    def products(sums, sums_stride, panel, w, w_stride, table, taps, count):
        """sums[m][v] += sum over taps; strides in bytes, `count` vectors."""
        v = 0
        while v + vectors <= count:
            wide(sums + v * 64, sums_stride, panel + v * 64, w, w_stride, table, taps)
            v += vectors
        if vectors > 2 and v + 2 <= count:
            pair(sums + v * 64, sums_stride, panel + v * 64, w, w_stride, table, taps)
            v += 2
        while v < count:
            single(sums + v * 64, sums_stride, panel + v * 64, w, w_stride, table, taps)
            v += 1

    return products
