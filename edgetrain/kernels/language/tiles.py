"""Sizes of tiles and panels of the fast kernels by a target's lanes: the only place for them.

They fit the registers and first-level caches of the smallest processors with that many lanes. None
of them changes a bit of a result: whatever fixes the order of a sum (terms of a chain, pixels of a
tile) is a constant of its kernel.
"""

from typing import NamedTuple


class GemmTile(NamedTuple):
    """Tile sizes of a matrix product.

    Attributes:
      tall, vectors: rows, and vectors of 16 columns, whose sums are in registers.
      side: width in floats of the squares that are transposed in registers.
    """

    tall: int
    vectors: int
    side: int


GEMM = {16: GemmTile(8, 2, 16), 8: GemmTile(6, 1, 8), 4: GemmTile(4, 1, 4)}
