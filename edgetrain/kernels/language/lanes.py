"""Rows and columns in blocks of LANES elements: every inner loop has one fixed length.

A reduction along the middle axis of [outer, n, inner] is cut into work items. An item is a row (if
inner is 1; positions modulo LANES each have a float64 partial result, and these are combined in a
fixed tree) or LANES columns (one result each, one element of each at a time). In both cases, lane j
of block t is the element at base + t * step + j, and lanes from `width` on are padding.
"""

from numba import types

from .block import add_wide, get, larger, put, put_wide, smaller, whole
from .inlining import inline
from .number import Vector, lane, shuffled
from .prim import div

LANES = 64
_row = whole(Vector(types.float64, LANES))


@inline
def _product(a, b):
    return a * b


_COMBINE = {"add": add_wide, "mul": _product, "max": larger, "min": smaller}


def halved(combine, half: int):
    """Inline (vector of 2 * half lanes) -> `combine` of its two halves."""
    lower, upper = shuffled(tuple(range(half))), shuffled(tuple(range(half, 2 * half)))

    @inline
    def combined(value):
        return combine(lower(value, value), upper(value, value))

    return combined


def halves(combine):
    """Inline (vector of LANES) -> `combine` of all lanes by halves: j with j + 32, ... ."""
    by32, by16, by8, by4, by2, by1 = (halved(combine, half) for half in (32, 16, 8, 4, 2, 1))
    first = lane(0)

    @inline
    def folded(value):
        return first(by1(by2(by4(by8(by16(by32(value)))))))

    return folded


def fold(kind: str):
    """fold(wide): sum, product, max or min of LANES float64 by halves: j with j + 32, ... ."""
    folded = halves(_COMBINE[kind])

    @inline
    def fold(wide):
        return folded(_row(wide))

    return fold


@inline
def reset(wide, first, value):
    """Set LANES partial results, from `first` on, to `value`."""
    for j in range(LANES):
        put_wide(wide, first + j, value)


def loader(load):
    """load64(buffer, address, offset, m, rest): load LANES elements from `offset` on; elements from
    the m-th on become `rest`."""

    @inline
    def load64(buffer, address, offset, m, rest):
        if m == LANES:
            for j in range(LANES):
                put(buffer, j, load(address, offset + j))
        else:
            for j in range(m):
                put(buffer, j, load(address, offset + j))
            for j in range(m, LANES):
                put(buffer, j, rest)

    return load64


def storer(store):
    """store64(buffer, address, offset, m): store the first m <= LANES elements from `offset` on."""

    @inline
    def store64(buffer, address, offset, m):
        if m == LANES:
            for j in range(LANES):
                store(address, offset + j, get(buffer, j))
        else:
            for j in range(m):
                store(address, offset + j, get(buffer, j))

    return store64


@inline
def items(outer, inner):
    """Number of work items."""
    return outer * div(inner + LANES - 1, LANES)


@inline
def item(k, n, inner):
    """(base, columns or 0 for a row, blocks, step) of work item k."""
    if inner == 1:
        return k * n, 0, div(n + LANES - 1, LANES), LANES
    across = div(inner + LANES - 1, LANES)
    row = div(k, across)
    column = (k - row * across) * LANES
    return row * n * inner + column, min(LANES, inner - column), n, inner


@inline
def width(t, columns, n):
    """Number of elements in block t."""
    return columns if columns > 0 else min(LANES, n - t * LANES)
