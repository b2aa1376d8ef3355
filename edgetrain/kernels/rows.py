"""Walks along the middle axis of [outer, n, inner], in blocks that serve any inner.

Work item k is a row (inner 1: blocks of BLOCK elements of it, each position modulo BLOCK with its
own partial result) or BLOCK columns (one element of each at a time, each column with its own
result). Either way element j of block t lies at base + t * step + j, and partial result j is its
own; `settle` makes the partial results of a row one.
"""

from .block import BLOCK, fold, get_wide, set_all
from .jit import inline
from .prim import div


@inline
def items(outer, inner):
    """Number of work items."""
    return outer * div(inner + BLOCK - 1, BLOCK)


@inline
def item(k, n, inner):
    """(base, partial results, blocks, step, elements or -1 for columns) of work item k."""
    if inner == 1:
        return k * n, min(n, BLOCK), div(n + BLOCK - 1, BLOCK), BLOCK, n
    across = div(inner + BLOCK - 1, BLOCK)
    row = div(k, across)
    column = (k - row * across) * BLOCK
    return row * n * inner + column, min(BLOCK, inner - column), n, inner, -1


@inline
def width(t, used, length):
    """Elements of block t."""
    return used if length < 0 else min(BLOCK, length - t * BLOCK)


def settling(combine):
    """settle(wide, used, length): every partial result of a row becomes the row's result."""
    tree = fold(combine)

    @inline
    def settle(wide, used, length):
        if length >= 0:
            tree(wide, used)
            set_all(wide, used, get_wide(wide, 0))

    return settle
