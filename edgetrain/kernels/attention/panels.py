"""Matrix products of attention: float32 panels of both factors, and the product itself.

A float32 factor is read in place if its layout allows; any other is converted to float32 and packed
into a panel. With vectors, packing and products are gemm's; without (lanes 0) they are the loops
below, which add the same terms in the same order.
"""

import functools
from typing import NamedTuple

import numpy as np

from ..gemm.fast import _column_packer, _sweeper
from ..gemm.plan import Side
from ..language.inlining import inline
from ..language.lanes import LANES, loader, storer
from ..language.number import fma
from ..language.prim import FP32, div, mod
from ..language.tile import ADD, GO_ON, Rows
from ..language.tiles import GEMM
from ..language.vector import WIDTH

_ZERO = np.float32(0)
_ld32, _st32 = FP32.ld, FP32.st


class Matrix(NamedTuple):
    """Rows of an operand: its address, the first element of the rows, their stride in elements."""

    address: int
    offset: int
    row: int


@functools.cache
def products(lanes: int):
    """Inline (left, right, out, rows, columns, terms, how): out[rows][columns] (+)= left * right.

    Factors and `out` are `Rows`; `how` is SET, ADD or GO_ON, as in `micro_kernel` of
    language/tile.py.
    """
    if lanes:
        return _sweeper(GEMM[lanes].tall, GEMM[lanes].vectors)

    @inline
    def multiply(a, b, c, rows, columns, k, how):
        for i in range(rows):
            for j in range(columns):
                offset = c.address + i * c.step + 4 * j
                right = b.address + div(j, WIDTH) * b.step + 4 * mod(j, WIDTH)
                chain = _ld32(offset, 0) if how == GO_ON else _ZERO
                for p in range(k):
                    left = _ld32(a.address + i * a.step + p * a.k, 0)
                    chain = fma(left, _ld32(right + p * b.k, 0), chain)
                _st32(offset, 0, _ld32(offset, 0) + chain if how == ADD else chain)

    return multiply


@functools.cache
def _packer(storage, lanes: int):
    """Like `_column_packer` of gemm/fast.py, also without vectors."""
    if lanes:
        return _column_packer(storage, GEMM[lanes].side)
    ld = storage.ld

    @inline
    def pack(b, offset, panel, pitch, terms, columns):
        for j in range(columns):
            to = panel + 4 * (div(j, WIDTH) * WIDTH * pitch + mod(j, WIDTH))
            for r in range(terms):
                _st32(to, WIDTH * r, ld(b.address, offset + r * b.k + j * b.step))

    return pack


@functools.cache
def left(storage):
    """Inline (matrix, first, rows, width, panel) -> `Rows` of a left factor [rows, width]."""
    ld, lies = storage.ld, storage.single

    @inline
    def rows_of(matrix, first, rows, width, panel):
        offset = matrix.offset + first * matrix.row
        if lies:
            return Rows(matrix.address + 4 * offset, 4 * matrix.row, 4)
        for r in range(rows):
            for c in range(width):
                _st32(panel, r * width + c, ld(matrix.address, offset + r * matrix.row + c))
        return Rows(panel, 4 * width, 4)

    return rows_of


@functools.cache
def right(storage, lanes: int):
    """Inline (matrix, first, rows, width, panel) -> `Rows` of a right factor [rows, width]."""
    pack, lies = _packer(storage, lanes), storage.single

    @inline
    def columns_of(matrix, first, rows, width, panel):
        offset = matrix.offset + first * matrix.row
        if lies and mod(width, WIDTH) == 0:
            return Rows(matrix.address + 4 * offset, 4 * WIDTH, 4 * matrix.row)
        side = Side(matrix.address, 0, 0, 1, 0, matrix.row)
        pack(side, offset, panel, rows, rows, width)
        return Rows(panel, 4 * WIDTH * rows, 4 * WIDTH)

    return columns_of


@functools.cache
def turned(storage, lanes: int):
    """Inline (matrix, first, rows, width, panel) -> `Rows` of a right factor [width, rows], the
    transpose of the matrix."""
    pack = _packer(storage, lanes)

    @inline
    def columns_of(matrix, first, rows, width, panel):
        side = Side(matrix.address, 0, 0, matrix.row, 0, 1)
        pack(side, matrix.offset + first * matrix.row, panel, width, width, rows)
        return Rows(panel, 4 * WIDTH * width, 4 * WIDTH)

    return columns_of


@inline
def clear(address, count):
    """Set `count` floats, a multiple of 16, to 0."""
    for j in range(count):
        _st32(address, j, _ZERO)


@inline
def whole(count):
    """`count` rounded up to a multiple of 16."""
    return div(count + WIDTH - 1, WIDTH) * WIDTH


@functools.cache
def put_rows(storage):
    """Inline (row, sums, width, matrix, first, rows, columns): store rows of sums to a matrix.

    sums: float32 [rows][width]; its first `columns` go to rows `first`, first + 1, ... of the
    matrix. row: a buffer of language/lanes.py.
    """
    load, put = loader(FP32.ld), storer(storage.st)

    @inline
    def put_all(row, sums, width, matrix, first, rows, columns):
        for r in range(rows):
            to = matrix.offset + (first + r) * matrix.row
            for c in range(0, columns, LANES):
                count = min(LANES, columns - c)
                load(row, sums, r * width + c, count, _ZERO)
                put(row, matrix.address, to + c, count)

    return put_all
