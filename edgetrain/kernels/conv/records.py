"""Records that the functions of convolutions hand to each other; addresses and sizes are int64.

A kernel's record of operands holds the shapes and the prologue flat; `shapes` and `prologue_of`
(conv/fast_tile.py) take them out of it.
"""

from typing import NamedTuple

import numpy as np


class Conv(NamedTuple):
    """Shapes of x [n, c, h, wd], w [k, c/g, kh, kw], y [n, k, oh, ow]; how windows lie."""

    n: int
    c: int
    h: int
    wd: int
    k: int
    kh: int
    kw: int
    oh: int
    ow: int
    sh: int
    sw: int
    ph: int
    pw: int
    dh: int
    dw: int
    g: int


class Prologue(NamedTuple):
    """What is done to elements as they are read: batch norm where stat is not 0, activation."""

    stat: int
    gamma: int
    beta: int
    act: int
    lo: np.float32
    hi: np.float32


class Affine(NamedTuple):
    """A prologue of one channel: act(v * scale + shift); norm is 0 without scale and shift."""

    norm: int
    scale: np.float32
    shift: np.float32
    act: int
    lo: np.float32
    hi: np.float32


class Map(NamedTuple):
    """An array [., channels, height, width] of `size` elements."""

    at: int
    size: int
    channels: int
    height: int
    width: int


class Grid(NamedTuple):
    """Maps of n x height x width cut into across x down x deep tiles of columns x rows x images."""

    across: int
    down: int
    deep: int
    columns: int
    rows: int
    images: int
    n: int
    height: int
    width: int


class Tile(NamedTuple):
    """A tile of output pixels."""

    image0: int
    images: int
    row0: int
    rows: int
    column0: int
    columns: int


class Axis(NamedTuple):
    """Output j reads stride * j + low + t * distance at its tap t < taps.

    That is tap first + t * step of the kernel; where it falls while t rises, see `tap_class`.
    """

    taps: int
    low: int
    distance: int
    first: int
    step: int


class Window(NamedTuple):
    """What a tile reads: along rows and columns, with `extra` rows beyond the tile's in a bank."""

    row_stride: int
    column_stride: int
    rows: Axis
    columns: Axis
    banks: int
    extra: int


class Ahead(NamedTuple):
    """What to prefetch in a plane: `span` elements, `start` elements after a tile's first."""

    start: int
    span: int


class Range(NamedTuple):
    """Of `total` places those from `first` to before `last`."""

    total: int
    first: int
    last: int


class Lines(NamedTuple):
    """Where a bank's rows of `images` lines each come from.

    Line (row, image) begins at element at + row * row_step + image * image_step of x, its elements
    `stride` apart; what is outside of the ranges is zero. fast: stride is 1 or 2, and x may be
    read 32 elements further.
    """

    x: int
    at: int
    row_step: int
    image_step: int
    images: int
    rows: Range
    columns: Range
    stride: int
    fast: int


class Bank(NamedTuple):
    """A bank of one channel of a panel, which is to be written.

    Attributes:
      target: address of its first row, in the tap column that is written first.
      region: bytes from a tap column to the next.
      plane: element of the map where the channel begins, in the tile's first image.
      low: the map's row that its first row holds; may lie outside the map.
      nothing: 0, which the compiler does not know.
    """

    target: int
    region: int
    plane: int
    low: int
    nothing: int


class LinePair(NamedTuple):
    """Elements `stride` apart from `at` of x on, and those of dy from `out` on."""

    x: int
    at: int
    stride: int
    dy: int
    out: int


class PixelClass(NamedTuple):
    """The row class of remainder `row` modulo sh, with maps of sums `map_bytes` apart for sw."""

    row: int
    sh: int
    sw: int
    map_bytes: int


class Pool(NamedTuple):
    """A sparse weight: `slots` values and columns."""

    w: int
    columns: int
    slots: int


class PoolRows(NamedTuple):
    """Rows first .. first + rows of a sparse weight, each in `chunks` of `chunk` channels."""

    w: int
    columns: int
    pointers: int
    first: int
    rows: int
    chunks: int
    chunk: int


class Group(NamedTuple):
    """A group's output channels and its first input channel."""

    output0: int
    outputs: int
    input0: int


class Block(NamedTuple):
    """Input channels worked on together, and the weights and ids that list their nonzeros."""

    first: int
    channels: int
    nonzeros: int
    weights: int
    ids: int


class Walk(NamedTuple):
    """How far `rows` rows of nonzeros have been taken, int32 each.

    Row o goes on at nonzero cursors[o], before the int32 `ends_stride` bytes after the last row's
    end, while columns are below `limit`; it leaves in stops[o] where it stopped.
    """

    cursors: int
    stops: int
    ends: int
    ends_stride: int
    rows: int
    limit: int


class Columns(NamedTuple):
    """Columns of a pool from (chunk0, column0) to before (chunk1, column1)."""

    chunk0: int
    column0: int
    chunk1: int
    column1: int


class Sums(NamedTuple):
    """Rows of float32 vectors `stride` bytes apart; where fresh is not 0 they count as zero."""

    at: int
    stride: int
    fresh: int


class Pieces(NamedTuple):
    """A tile's pixels in a map, in pieces of `elements` (0: they are not taken so).

    Row o's are `at` + o * stride bytes plus the int32 places[0], places[1] ... away.
    """

    elements: int
    at: int
    stride: int
    places: int


# Constants, so that a function that gets only these is compiled for them.
AS_IT_IS = Prologue(0, 0, 0, 0, np.float32(0), np.float32(0))
POINT = Window(1, 1, Axis(1, 0, 1, 0, 1), Axis(1, 0, 1, 0, 1), 1, 0)  # a pixel reads itself
