"""Addresses of gemm's panels and tiles: in scratch, or on the stack for small products.

Products of at most SMALL terms in total use no scratch: it would be larger than their operands.
They use STACK bytes of the thread's stack, whatever the model.
"""

import functools
from typing import NamedTuple

from ..language.inlining import inline
from ..language.prim import div
from ..language.vector import WIDTH

KC = 96  # terms of a chain: they fix the order of a sum
MT, NT = 128, 64  # most rows and columns of a tile of c
BLOCK = 16  # rows of a panel
SMALL = 1 << 20
SMALL_BLOCK = 8  # rows of a panel on the stack
STACK = 4096  # bytes: left panel, right panel, a tile of sums and one of a chain
_WIDE = f"min({NT}, {WIDTH}*((max(m, n) + {WIDTH - 1})//{WIDTH}))"
_FLOATS = f"min({KC}, k2*k)*({BLOCK} + {_WIDE}) + {_WIDE}*min({MT}, z1*z2*m)"
SCRATCH = f"4*({_FLOATS})*(z1*z2*m*n*k2*k > {SMALL})"


class Panels(NamedTuple):
    """Addresses in scratch, and sizes.

    Attributes:
      a, b: packed blocks of the factors.
      c, chain: tiles of the result and of a chain.
      pitch: floats of a row of `a`.
      row: floats of a row of a tile.
      block: rows that are packed at once.
      most: most terms of a panel.
    """

    a: int
    b: int
    c: int
    chain: int
    pitch: int
    row: int
    block: int
    most: int


@inline
def panels(scratch, n, terms):
    """(`Panels` in scratch, rows of a tile, columns of a tile)."""
    pitch, row = min(KC, terms), min(NT, WIDTH * div(n + WIDTH - 1, WIDTH))
    second = scratch + 4 * BLOCK * pitch
    third = second + 4 * row * pitch
    return Panels(scratch, second, third, third, pitch, row, BLOCK, KC), MT, NT


@functools.cache
def small_panels(A):
    """Inline (start, blocks, lie, summed): like `panels`, in STACK bytes.

    lie: both factors are multiplied in place. With several blocks, a chain needs its own tile, and
    another for the sum of the previous blocks, unless that is `summed` in c.
    """
    in_place = A.single
    left = 0 if in_place else 4 * 16 * 16

    @inline
    def place(start, blocks, lie, summed):
        mt, nt, most = 32, 16, 32 if in_place else 16
        if lie:
            nt = 32
        elif blocks > 1 and not (in_place and summed):
            mt = 16
        second = start + left
        third = second + (0 if lie else 4 * most * nt)
        fourth = third + (0 if in_place and summed else 4 * mt * nt)
        return Panels(start, second, third, fourth, most, nt, SMALL_BLOCK, most), mt, nt

    return place
