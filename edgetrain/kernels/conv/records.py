"""Records that the convolution functions pass to each other; addresses and sizes are int64.

A kernel's record of operands holds the shapes and the prologue flat; `shapes` and `prologue_of`
(conv/fast_tile.py) extract them.
"""

from typing import NamedTuple

import numpy as np


class Conv(NamedTuple):
    """Shapes of x [n, c, h, wd], w [k, c/g, kh, kw], y [n, k, oh, ow]; strides, padding, dilation,
    number of groups."""

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
    """Applied to elements as they are read: batch norm if stat is not 0, then an activation."""

    stat: int
    gamma: int
    beta: int
    act: int
    lo: np.float32
    hi: np.float32


class Affine(NamedTuple):
    """The prologue of one channel: act(v * scale + shift); norm is 0 without scale and shift."""

    norm: int
    scale: np.float32
    shift: np.float32
    act: int
    lo: np.float32
    hi: np.float32


class Map(NamedTuple):
    """An array [., channels, height, width] of `size` elements."""

    address: int
    size: int
    channels: int
    height: int
    width: int


class Grid(NamedTuple):
    """Maps of n x height x width, in across x down x deep tiles of columns x rows x images."""

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

    That is tap first + t * step of the kernel; in input gradients kernel taps fall as t rises, see
    `tap_class`.
    """

    taps: int
    low: int
    distance: int
    first: int
    step: int


class Window(NamedTuple):
    """The input that a tile reads, by rows and columns; banks have `extra` rows beyond the
    tile's."""

    row_stride: int
    column_stride: int
    rows: Axis
    columns: Axis
    banks: int
    extra: int


class Ahead(NamedTuple):
    """Elements of a plane to prefetch: `span` of them, `start` elements after a tile's first."""

    start: int
    span: int


class Range(NamedTuple):
    """Positions `first` <= i < `last` of `total`."""

    total: int
    first: int
    last: int


class Lines(NamedTuple):
    """Source of a bank's rows of `images` lines each.

    Line (row, image) begins at element offset + row * row_step + image * image_step of x, with
    elements `stride` apart; outside the ranges it is zero. fast: stride is 1 or 2, and x may be
    read 32 elements past the last line.
    """

    x: int
    offset: int
    row_step: int
    image_step: int
    images: int
    rows: Range
    columns: Range
    stride: int
    fast: int


class Bank(NamedTuple):
    """A bank to be written, of one channel of a panel.

    Attributes:
      target: address of its first row, in the tap column that is written first.
      region: bytes from one tap column to the next.
      plane: element of the map at which the channel begins, in the tile's first image.
      low: the map's row in its first row; may be outside the map.
      nothing: a 0 that the compiler does not recognise.
    """

    target: int
    region: int
    plane: int
    low: int
    nothing: int


class LinePair(NamedTuple):
    """Elements of x from `offset` on, `stride` apart, and contiguous ones of dy from `out` on."""

    x: int
    offset: int
    stride: int
    dy: int
    out: int


class PixelClass(NamedTuple):
    """The row class with remainder `row` modulo sh, and sw maps of sums, `map_bytes` apart."""

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
    """`rows` rows of a sparse weight from row `first` on, each in `chunks` of `chunk` channels."""

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
    """Input channels processed together, and the weights and ids that list their nonzeros."""

    first: int
    channels: int
    nonzeros: int
    weights: int
    ids: int


class Walk(NamedTuple):
    """Progress through `rows` rows of nonzeros; cursors, stops and ends are int32.

    Row o continues at nonzero cursors[o]. It takes nonzeros before its end (ends are `ends_stride`
    bytes apart) while their columns are below `limit`, and stores in stops[o] where it stopped.
    """

    cursors: int
    stops: int
    ends: int
    ends_stride: int
    rows: int
    limit: int


class Columns(NamedTuple):
    """Columns of a pool from (chunk0, column0) up to, not including, (chunk1, column1)."""

    chunk0: int
    column0: int
    chunk1: int
    column1: int


class Sums(NamedTuple):
    """Rows of float32 vectors `stride` bytes apart; if fresh is not 0, they count as zero."""

    address: int
    stride: int
    fresh: int


class Pieces(NamedTuple):
    """A tile's pixels in a map, in pieces of `elements` elements (0: not in pieces).

    Piece i of row o is at `address` + o * stride + places[i], in bytes; places are int32.
    """

    elements: int
    address: int
    stride: int
    places: int


# Constants, so that functions that only receive these are specialised for them.
AS_IT_IS = Prologue(0, 0, 0, 0, np.float32(0), np.float32(0))
POINT = Window(1, 1, Axis(1, 0, 1, 0, 1), Axis(1, 0, 1, 0, 1), 1, 0)  # a pixel reads itself
