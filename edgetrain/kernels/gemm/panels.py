"""Where gemm's panels and tiles lie: in scratch; of small products on the stack.

Products of at most SMALL terms in all need no scratch: beside their operands it would be the
larger part. They have STACK bytes of the thread's stack, whatever the model.
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
    """Addresses in scratch: packed blocks of both factors, the tile of the result and that of a
    chain; floats of a row of the left one (`pitch`) and of a tile (`row`); rows that are packed at
    once; the most terms of a panel."""

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
    """(`Panels`, rows and columns of a tile) in scratch."""
    pitch, row = min(KC, terms), min(NT, WIDTH * div(n + WIDTH - 1, WIDTH))
    second = scratch + 4 * BLOCK * pitch
    third = second + 4 * row * pitch
    return Panels(scratch, second, third, third, pitch, row, BLOCK, KC), MT, NT


@functools.cache
def small_panels(A):
    """Inline (start, blocks, lie, summed): as `panels`, in STACK bytes.

    lie: both factors are multiplied in place. With several blocks, a chain needs its own tile, and
    another for the sum of the blocks before, unless that is `summed` in c.
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
