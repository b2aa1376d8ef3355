"""Tiles and panels of the fast kernels, by a target's lanes: the one place for such numbers.

They fit the registers and first caches of the smallest processors with so many lanes. None of them
changes a bit of a result: what fixes the order of a sum (terms of a chain, pixels of a tile) is a
constant of its kernel.
"""

from typing import NamedTuple


class GemmTile(NamedTuple):
    """How a product is cut.

    Attributes:
      tall, vectors: rows, and vectors of 16 columns, whose sums are in registers.
      side: floats of the squares that a transpose turns in registers.
    """

    tall: int
    vectors: int
    side: int


GEMM = {16: GemmTile(8, 2, 16), 8: GemmTile(6, 1, 8), 4: GemmTile(4, 1, 4)}
