"""Weight gradients for conv/depthwise3x3.py, with the same sums as `conv_dw.depthwise`.

The images of a tile are side by side: row after row, each with a line of every image, and a row of
zeros (or of the map) above and below. A tap is then all of it shifted by some pixels.
"""

import functools
from typing import NamedTuple

from ..language.calls import outline
from ..language.fused_activation import ZERO, act_value, norm_scale, norm_shift
from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, Storage, div, mod
from ..language.random_store import random_stores
from ..language.tile import nine_sums
from ..language.vector import WIDTH, loads, loads_first, stores, vkeep, vsplat
from . import fast_tile as tiles
from .depthwise3x3_parts import Taps, every, taken, vand
from .pack_parts import vinside
from .records import AS_IT_IS, Conv, Prologue, Tile

_vld, _vst = loads(FP32), stores(FP32)


class Desk(NamedTuple):
    """Addresses of scratch: a vector for each tap, a tile's gradients, a tile's inputs."""

    sums: int
    line: int
    panel: int


@functools.cache
def _lay(S: Storage):
    """Inline function that copies rows `top` <= y < `bottom` of a tile's images to float32."""
    vld, vfirst = loads(S), loads_first(S)

    @inline
    def lay(address, x, ch, p: Conv, tile: Tile, top, bottom, pro: Prologue):
        """Copy rows of `p.wd` pixels to `address`, through the prologue; up to 15 more floats
        are written."""
        scale, shift, size = vsplat(ZERO), vsplat(ZERO), p.n * p.c * p.h * p.wd
        if pro.stat != 0:
            scale = vsplat(norm_scale(pro.stat, pro.gamma, ch, p.c))
            shift = vsplat(norm_shift(pro.stat, pro.gamma, pro.beta, ch, p.c))
        lines, length = bottom - top, p.wd
        if tile.images == 1:
            lines, length = 1, lines * length
        for line in range(lines):
            for image in range(tile.images):
                index = (((tile.image0 + image) * p.c + ch) * p.h + top + line) * p.wd
                target = (line * tile.images + image) * length
                for j in range(0, length, WIDTH):
                    left = size - index - j
                    v = vld(x, index + j) if left >= WIDTH else vfirst(x, index + j, left)
                    if pro.stat != 0:
                        v = fma(v, scale, shift)
                    _vst(address, target + j, act_value(pro.act, v, pro.lo, pro.hi), WIDTH)

    return lay


@inline
def _added(t: Taps, d, address, row, left, right):
    """t + the products of gradients d with the pixels around `address`; `row` in bytes."""
    return Taps(
        fma(vand(_vld(address - row - 4, 0), left), d, t.w0),
        fma(_vld(address - row, 0), d, t.w1),
        fma(vand(_vld(address - row + 4, 0), right), d, t.w2),
        fma(vand(_vld(address - 4, 0), left), d, t.w3),
        fma(_vld(address, 0), d, t.w4),
        fma(vand(_vld(address + 4, 0), right), d, t.w5),
        fma(vand(_vld(address + row - 4, 0), left), d, t.w6),
        fma(_vld(address + row, 0), d, t.w7),
        fma(vand(_vld(address + row + 4, 0), right), d, t.w8),
    )


@inline
def _sides(start, wd):
    """Lanes, as bit masks, whose left and right neighbours are in their line of `wd`."""
    if mod(wd, WIDTH) == 0:
        head, tail = 1 if start == 0 else 0, WIDTH - 1 if start + WIDTH == wd else WIDTH
        return vkeep(every(), head, WIDTH), vkeep(every(), 0, tail)
    return vinside(every(), start, wd, -1), vinside(every(), start, wd, 1)


def _products(sums, line, address, count, row, wd):
    """Add the products of `count` gradients to the vectors at `sums`, one for each tap, in the
    order of `gemm_dots`."""
    full, start, t = count >> 4 << 4, 0, taken(sums)
    if mod(WIDTH, wd) == 0:
        left, right = vinside(every(), 0, wd, -1), vinside(every(), 0, wd, 1)
        for j in range(0, full, WIDTH):
            t = _added(t, _vld(line, j), address + 4 * j, row, left, right)
    else:
        for j in range(0, full, WIDTH):
            left, right = _sides(start, wd)
            t = _added(t, _vld(line, j), address + 4 * j, row, left, right)
            start = mod(start + WIDTH, wd)
    if full < count:
        left, right = _sides(mod(full, wd), wd)
        kept = vkeep(every(), 0, count - full)
        d, address = vand(_vld(line, full), kept), address + 4 * full
        t = Taps(
            fma(vand(_vld(address - row - 4, 0), vand(left, kept)), d, t.w0),
            fma(vand(_vld(address - row, 0), kept), d, t.w1),
            fma(vand(_vld(address - row + 4, 0), vand(right, kept)), d, t.w2),
            fma(vand(_vld(address - 4, 0), vand(left, kept)), d, t.w3),
            fma(vand(_vld(address, 0), kept), d, t.w4),
            fma(vand(_vld(address + 4, 0), vand(right, kept)), d, t.w5),
            fma(vand(_vld(address + row - 4, 0), vand(left, kept)), d, t.w6),
            fma(vand(_vld(address + row, 0), kept), d, t.w7),
            fma(vand(_vld(address + row + 4, 0), vand(right, kept)), d, t.w8),
        )
    for q, value in enumerate((t.w0, t.w1, t.w2, t.w3, t.w4, t.w5, t.w6, t.w7, t.w8)):
        _vst(sums, WIDTH * q, value, WIDTH)


# not inlined: in the kernel's loops the compiler would not keep all sums in registers
_multiply = outline("et_depthwise3x3_products", _products)


@functools.cache
def _closer(G: Storage):
    """Function that adds the sum of each tap's lanes to a gradient accumulator."""
    vfirst, put = loads_first(G), random_stores(G)

    def close(target, index, sums, numbers):
        t, zero = taken(sums), vsplat(ZERO)
        a, b, c = t.w0 + zero, t.w1 + zero, t.w2 + zero
        d, e, f = t.w3 + zero, t.w4 + zero, t.w5 + zero
        g, h, i = t.w6 + zero, t.w7 + zero, t.w8 + zero
        total = nine_sums(a, b, c, d, e, f, g, h, i)
        put(target, index, vfirst(target, index, 9) + total, 9, numbers)

    return outline(f"et_depthwise3x3_sums_{G.name}", close)


@functools.cache
def depthwise3x3_dw(S: Storage, G: Storage):
    """Inline function (thread, nthreads, x, dy, dwt, shapes, prologue, desk, numbers, limit)."""
    lay, close = _lay(S), _closer(G)

    @inline
    def zeros(address, count):
        for j in range(0, count, WIDTH):
            _vst(address, j, vsplat(ZERO), WIDTH)

    @inline
    def run(thread, nthreads, x, dy, dwt, p: Conv, pro: Prologue, desk: Desk, numbers, limit):
        grid = tiles.tile_grid(p.n, p.h, p.wd, limit)
        for ch in range(div(p.c * thread, nthreads), div(p.c * (thread + 1), nthreads)):
            zeros(desk.sums, 9 * WIDTH)
            for spot in range(tiles.tiles_of(grid)):
                tile = tiles.tile_at(spot, grid)
                pitch, end = tiles.pitch_of(tile), tile.row0 + tile.rows
                top, bottom = max(tile.row0 - 1, 0), min(end + 1, p.h)
                address = desk.panel + 64  # the row above the tile's
                begin = pitch if tile.row0 == 0 else 0
                zeros(desk.panel, WIDTH + begin)
                lay(address + 4 * begin, x, ch, p, tile, top, bottom, pro)
                if end == p.h:
                    zeros(address + 4 * (begin + (bottom - top) * pitch), pitch + WIDTH)
                lay(desk.line, dy, ch, p, tile, tile.row0, end, AS_IT_IS)
                pixels = tile.rows * pitch
                _multiply(desk.sums, desk.line, address + 4 * pitch, pixels, 4 * pitch, p.wd)
            close(dwt, ch * 9, desk.sums, numbers)

    return run
