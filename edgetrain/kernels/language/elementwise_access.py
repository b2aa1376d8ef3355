"""Loads and stores of loops that go over operands element by element, without a buffer between.

Where an output may be one of the inputs the compiler would have to test for it, or take one element
at a time. The intrinsics here say what it cannot see, so that every loop over them becomes vectors:

  - a store changes nothing that a load here has yet to read. It holds where an output is an input
    whole, never shifted, and every element that is read is read for the last time before, or for,
    the store of the same place. What a loop reads that an earlier one of the kernel stored, it
    loads with the storage's own `ld`.
  - buffers on the stack overlap no operand.
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
    """How many blocks of a work item (lanes.py) have all LANES; they are the first ones."""
    if columns == 0:
        return div(n, LANES)
    return blocks if columns == LANES else 0


@inline
def _greater(a, b):
    return where(a > b, a, b)


_greatest = halves(_greater)


@inline
def greatest(buffer):
    """The greatest of LANES float32, of which none is NaN."""
    return _greatest(_row(buffer))
