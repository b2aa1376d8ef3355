"""Loads and stores for loops that go over operands element by element, without a buffer.

If an output may be one of the inputs, the compiler would have to test for it, or process one
element at a time. The intrinsics here guarantee what it cannot see, so that every loop over them is
vectorized:

  - A store changes nothing that a load here has yet to read. This holds if an output is exactly an
    input, never shifted, and the last read of every element comes before the store to its place,
    or is for that store. If a loop reads what an earlier loop of the kernel stored, it must use the
    storage's own `ld`.
  - Buffers on the stack overlap no operand.
"""

from numba import types

from .block import (
    get_apart,
    get_wide_apart,
    loads_apart,
    put_apart,
    put_wide_apart,
    stores_apart,
    whole,
)
from .inlining import inline
from .lanes import LANES, halves
from .number import Vector, where
from .prim import div

__all__ = ["full", "get", "get_wide", "greatest", "loads_apart", "put", "put_wide", "stores_apart"]

get, put, get_wide, put_wide = get_apart, put_apart, get_wide_apart, put_wide_apart
_row = whole(Vector(types.float32, LANES))


@inline
def full(columns, blocks, n):
    """How many blocks of a work item (lanes.py) have all LANES elements; these come first."""
    if columns == 0:
        return div(n, LANES)
    return blocks if columns == LANES else 0


@inline
def _greater(a, b):
    return where(a > b, a, b)


_greatest = halves(_greater)


@inline
def greatest(buffer):
    """The greatest of LANES float32, none of which is NaN."""
    return _greatest(_row(buffer))
