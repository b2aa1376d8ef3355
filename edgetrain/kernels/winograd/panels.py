"""Panels of tiles: their layout, and the transform of their inputs to points."""

import functools
from typing import NamedTuple

from ..conv.records import Map, Prologue
from ..language.inlining import inline
from ..language.prim import FP32, Storage, div, mod, to_float
from ..language.tile import micro_kernel
from ..language.vector import WIDTH, stores, vsplat
from .layout import APART, POINTS
from .lines import pads

LOW = 4  # rows of the smallest register tile
_vst = stores(FP32)


class Panel(NamedTuple):
    """`strips` rows of `columns` tiles each, from row `strip` of all images and tile column
    `column` on; an image has `high` rows of tiles."""

    strip: int
    strips: int
    column: int
    columns: int
    high: int


class Room(NamedTuple):
    """Scratch for reading a panel."""

    turned: int
    padded: int
    square: int
    nothing: int


class Lanes(NamedTuple):
    """Planes of [row][lane], `plane` bytes apart."""

    address: int
    plane: int
    lanes: int


@inline
def ceil_div(a, b):
    """a / b rounded up, for a >= 0."""
    return div(a + b - 1, b)


@inline
def lanes_at(address, rows, lanes):
    """The planes of a buffer."""
    return Lanes(address, 4 * rows * lanes + APART, lanes)


@inline
def lanes_after(planes, rows):
    """The planes from a row on."""
    return Lanes(planes.address + 4 * rows * planes.lanes, planes.plane, planes.lanes)


@inline
def panels_of(sizes, n):
    """Number of panels."""
    return sizes.parts * ceil_div(n * sizes.high, sizes.strips)


@inline
def panel_at(q, sizes, n):
    """Panel q."""
    strip, column = div(q, sizes.parts) * sizes.strips, mod(q, sizes.parts) * sizes.columns
    strips, columns = (
        min(sizes.strips, n * sizes.high - strip),
        min(sizes.columns, sizes.across - column),
    )
    return Panel(strip, strips, column, columns, sizes.high)


@functools.cache
def reader(S: Storage, transform, halo: int):
    """Inline function that computes the points of a panel's tiles for some channels.

    Args:
      transform: of a tile, from language/transform.py.
      halo: pixels that a tile reads beyond its own 4 x 4.
    """
    pad = pads(S)

    @inline
    def read(
        to: Lanes, room: Room, source: Map, panel, first, channels, ph, pw, prologue: Prologue
    ):
        """to[p][tile][i]: point p of the tile in channel first + i, i < channels."""
        pitch, end = 4 * panel.columns + halo, panel.strip + panel.strips
        for i in range(0, channels, WIDTH):
            strip, place = panel.strip, to.address + 4 * i
            while strip < end:
                image, above = div(strip, panel.high), mod(strip, panel.high)
                count = min(panel.high - above, end - strip)
                pad(
                    room.padded,
                    room.turned,
                    room.square,
                    room.nothing,
                    source,
                    image,
                    first + i,
                    4 * above - ph,
                    4 * count + halo,
                    4 * panel.column - pw,
                    pitch,
                    prologue,
                )
                for r in range(count):
                    pixel = room.padded + 64 * 4 * r * pitch
                    for _ in range(panel.columns):
                        transform(pixel, 64 * pitch, 64, place, 6 * to.plane, to.plane)
                        pixel += 64 * 4
                        place += 4 * to.lanes
                strip += count

    return read


@inline
def clear_rows(to, nothing, first, last):
    """Set rows `first` <= row < `last` of every plane to 0."""
    zero = vsplat(to_float(nothing))
    for p in range(POINTS):
        for i in range(first * to.lanes, last * to.lanes, WIDTH):
            _vst(to.address + p * to.plane, i, zero, WIDTH)


@functools.cache
def tall_products(rows: int, vectors: int):
    """Inline (a, b, c, height, lanes, count, how): c (+)= a x b for `height` rows, a multiple of 4,
    and `lanes` lanes, a multiple of 16; see `micro_kernel`.

    Args:
      rows, vectors: of a register tile, for the target's registers; `rows` is 4 or 8.
    """
    from ..language.tile import Rows

    wide, single = micro_kernel(rows, vectors), micro_kernel(rows, 1)
    low_wide, low = micro_kernel(LOW, vectors), micro_kernel(LOW, 1)

    @inline
    def products(a, b, c, height, lanes, count, how):
        v = 0
        while v < lanes:
            step = vectors if lanes - v >= WIDTH * vectors else 1
            right = Rows(b.address + 4 * v, b.step, b.k)
            r = 0
            while r < height:
                left = Rows(a.address + r * a.step, a.step, a.k)
                sums = Rows(c.address + r * c.step + 4 * v, c.step, 0)
                if height - r < rows:
                    if step == vectors:
                        low_wide(left, right, sums, count, how)
                    else:
                        low(left, right, sums, count, how)
                elif step == vectors:
                    wide(left, right, sums, count, how)
                else:
                    single(left, right, sums, count, how)
                r += rows
            v += WIDTH * step

    return products
