"""Maxima and sums of exponentials along the middle axis of [outer, n, inner], for losses.

Work item k is a row (if inner is 1: blocks of BLOCK elements; each position modulo BLOCK has its
own partial result, and these are combined in a fixed tree) or up to BLOCK columns (one element of
each at a time). In both cases, element j of block b is at base + b * step + j and contributes to
partial result j.
"""

import numpy as np

from .block import BLOCK, add_wide, get, get_wide, larger, put, put_wide
from .inlining import inline
from .mathf import exp
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
def width(b, used, length):
    """Number of elements in block b."""
    return used if length < 0 else min(BLOCK, length - b * BLOCK)


@inline
def _set_all(wide, used, value):
    for j in range(used):
        put_wide(wide, j, value)


def _settling(combine):
    """settle(wide, used, length): set every partial result of a row to the row's result."""

    @inline
    def settle(wide, used, length):
        if length < 0:
            return
        left, half = used, BLOCK >> 1
        while half > 0:
            for j in range(left - half):
                put_wide(wide, j, combine(get_wide(wide, j), get_wide(wide, j + half)))
            left = min(left, half)
            half >>= 1
        _set_all(wide, used, get_wide(wide, 0))

    return settle


def surveyor(S):
    """Inline (x, wide, top, terms, base, used, blocks, step, length) for a work item.

    Stores the largest logit of each position in `top`, the sum of exp(x - top) in `wide`, and
    exp(x - top) of the last block in `terms`.
    """
    ld, settle_max, settle_sum = S.ld, _settling(larger), _settling(add_wide)

    @inline
    def survey(x, wide, top, terms, base, used, blocks, step, length):
        _set_all(wide, used, -np.inf)
        for b in range(blocks):
            for j in range(width(b, used, length)):
                value = np.float64(ld(x, base + b * step + j))
                put_wide(wide, j, larger(get_wide(wide, j), value))
        settle_max(wide, used, length)
        for j in range(used):
            put(top, j, np.float32(get_wide(wide, j)))
        _set_all(wide, used, 0.0)
        for b in range(blocks):
            for j in range(width(b, used, length)):
                term = exp(ld(x, base + b * step + j) - get(top, j))
                put(terms, j, term)
                put_wide(wide, j, get_wide(wide, j) + np.float64(term))
        settle_sum(wide, used, length)

    return survey
