"""Walks over six strided dimensions, one block at a time, to fill a buffer or write it back.

Positions count the elements of `dims` in row-major order; a block is m <= BLOCK consecutive
positions. Dims and strides are tuples of six int64. Strides count elements and may be negative;
stride 0 repeats an element.
"""

from .block import get, put
from .inlining import inline
from .prim import div, mod


@inline
def count(dims):
    """Number of positions."""
    return dims[0] * dims[1] * dims[2] * dims[3] * dims[4] * dims[5]


@inline
def _run_place(run, dims, strides):
    """Offset of the first element of run number `run`. A run is all positions of the last dim."""
    offset, q = 0, run
    if q > 0 and dims[4] > 1:
        offset += mod(q, dims[4]) * strides[4]
        q = div(q, dims[4])
    if q > 0 and dims[3] > 1:
        offset += mod(q, dims[3]) * strides[3]
        q = div(q, dims[3])
    if q > 0 and dims[2] > 1:
        offset += mod(q, dims[2]) * strides[2]
        q = div(q, dims[2])
    if q > 0:
        offset += mod(q, dims[1]) * strides[1]
        offset += div(q, dims[1]) * strides[0]
    return offset


@inline
def place(position, dims, strides):
    """Offset of a position, in elements."""
    run = div(position, dims[5])
    return _run_place(run, dims, strides) + (position - run * dims[5]) * strides[5]


def filler(load):
    """fill(buffer, address, origin, start, m, dims, strides): buffer[j] = element at start + j."""

    @inline
    def fill(buffer, address, origin, start, m, dims, strides):
        step, width = strides[5], dims[5]
        run = div(start, width) if start > 0 else 0
        column = start - run * width
        done = 0
        while done < m:
            n = min(width - column, m - done)
            offset = origin + _run_place(run, dims, strides) + column * step
            if step == 1:
                for j in range(n):
                    put(buffer, done + j, load(address, offset + j))
            elif step == 0:
                value = load(address, offset)
                for j in range(n):
                    put(buffer, done + j, value)
            else:
                for j in range(n):
                    put(buffer, done + j, load(address, offset + j * step))
            done += n
            run += 1
            column = 0

    return fill


def _nearest(store):
    @inline
    def without_key(address, place, value, key):
        store(address, place, value)

    return without_key


def spiller(storage, rounded=False):
    """spill(buffer, address, origin, start, m, dims, strides, key): element at start + j =
    buffer[j], rounded to nearest; `rounded`: stochastically, by `key` and the element's place."""
    store = storage.sr if rounded else _nearest(storage.st)

    @inline
    def spill(buffer, address, origin, start, m, dims, strides, key):
        step, width = strides[5], dims[5]
        run = div(start, width) if start > 0 else 0
        column = start - run * width
        done = 0
        while done < m:
            n = min(width - column, m - done)
            offset = origin + _run_place(run, dims, strides) + column * step
            if step == 1:
                for j in range(n):
                    store(address, offset + j, get(buffer, done + j), key)
            else:
                for j in range(n):
                    store(address, offset + j * step, get(buffer, done + j), key)
            done += n
            run += 1
            column = 0

    return spill
