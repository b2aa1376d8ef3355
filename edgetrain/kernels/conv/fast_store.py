"""Stores the sums of fast convolutions in their maps, and copies their weights."""

import functools

from ..language.calls import outline
from ..language.inlining import inline
from ..language.prim import FP32, Storage, div, mod
from ..language.tile import gemm_columns
from ..language.vector import WIDTH, loads, loads_first, stores, vinterleave
from .records import Map, PixelClass, Tile

_vld, _vst, _ld, _st = loads(FP32), stores(FP32), FP32.ld, FP32.st


@inline
def _first_of(target, channel, tile):
    """Index of a channel's first element in a tile's first image."""
    return (tile.image0 * target.channels + channel) * target.height * target.width


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
        """Store the sums, flat over the tile, in the channel's maps, or add them."""
        first, width = _first_of(target, channel, tile), target.width
        if tile.images == 1 and tile.columns == width:
            run(target.address, first + tile.row0 * width, source, tile.rows * width, acc)
        else:
            for row in range(tile.rows):
                for image in range(tile.images):
                    index = first + image * target.channels * target.height * width
                    index += (tile.row0 + row) * width + tile.column0
                    line = source + 4 * (row * tile.images + image) * tile.columns
                    run(target.address, index, line, tile.columns, acc)

    return outline(f"et_store_{S.name}", store)


@functools.cache
def class_store(S: Storage):
    """Function that stores one row class of one channel, interleaving its column classes."""
    vfirst, vst, ld, st = loads_first(S), stores(S), S.ld, S.st

    @inline
    def put(y, index, v, left, acc):
        if left > 0:
            vst(y, index, v + vfirst(y, index, left) if acc != 0 else v, left)

    def store(target: Map, channel, source, tile: Tile, pixels: PixelClass, acc):
        """Pixel (row, column * sw + b) of the class (+)= map b at (row, column)."""
        y, wd, sw, map_bytes = target.address, target.width, pixels.sw, pixels.map_bytes
        count = min(tile.columns * sw, wd - tile.column0 * sw)
        first = _first_of(target, channel, tile) + tile.column0 * sw
        image_step = target.channels * target.height * wd
        for row in range(tile.rows):
            iy = (tile.row0 + row) * pixels.sh + pixels.row
            if iy >= target.height:
                continue
            for image in range(tile.images):
                index = first + image * image_step + iy * wd
                address = source + 4 * (row * tile.images + image) * tile.columns
                if sw == 1:
                    for j in range(0, count, WIDTH):
                        put(y, index + j, _vld(address, j), count - j, acc)
                elif sw == 2:
                    for j in range(0, count, 2 * WIDTH):
                        even, odd = _vld(address, j >> 1), _vld(address + map_bytes, j >> 1)
                        put(y, index + j, vinterleave(even, odd, 0), count - j, acc)
                        further = index + j + WIDTH
                        put(y, further, vinterleave(even, odd, 1), count - j - WIDTH, acc)
                else:
                    for i in range(count):
                        total = _ld(address + mod(i, sw) * map_bytes, div(i, sw))
                        st(y, index + i, total + ld(y, index + i) if acc != 0 else total)

    return outline(f"et_store_classes_{S.name}", store)


@functools.cache
def classes_store(S: Storage):
    """Inline function that stores the sums of several channels for one row class."""
    plain, alternating = tile_store(S), class_store(S)

    @inline
    def store(target, first, channels, sums, count, tile, pixels, acc):
        """Store `channels` channels from `first` on, with `count` vectors of sums each."""
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
            offset, j = source + o * step, 0
            while j < count and offset + j + WIDTH <= size:
                _vst(target, j, vld(w, offset + j), WIDTH)
                j += WIDTH
            while j < count:
                _st(target, j, ld(w, offset + j))
                j += 1
            target += 4 * pitch

    return outline(f"et_weights_{W.name}", copy)


@inline
def set_row(target, value, count):
    """Set `count` vectors to `value`."""
    for v in range(count):
        _vst(target, v * WIDTH, value, WIDTH)


@functools.cache
def block_products(rows: int, vectors: int):
    """Inline function that multiplies a block of weights by every vector of a panel."""
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
