"""A row of a block of scores: masked, turned into weights, and back into gradients.

It lies in a buffer of COLUMNS numbers on the stack. Sums over it are float32, by halves.
"""

import functools

import numpy as np

from ..language.block import get, put
from ..language.inlining import inline
from ..language.lanes import loader
from ..language.mathf import HALF, INF, ONE, ZERO, exp
from ..language.prim import FP32, hash32, ld_u8, to_float
from ..language.rng import stream, upper24
from .layout import COLUMNS

ADDED, REPLACED = 1, 2  # what masks do
_PART = np.float32(2.0**-24)
_ld32, _load = FP32.ld, loader(FP32.ld)


@inline
def fraction(bits):
    """Upper 24 bits as a part of 2^24, as elementwise/dropout.py takes them."""
    return to_float(np.int64(upper24(bits))) * _PART


@inline
def total(part):
    """Sum of a buffer, which is overwritten."""
    for j in range(32):
        put(part, j, get(part, j) + get(part, j + 32))
    for j in range(16):
        put(part, j, get(part, j) + get(part, j + 16))
    for j in range(8):
        put(part, j, get(part, j) + get(part, j + 8))
    for j in range(4):
        put(part, j, get(part, j) + get(part, j + 4))
    return (get(part, 0) + get(part, 2)) + (get(part, 1) + get(part, 3))


@inline
def _more(a, b):
    return a if a > b or a != a else b


@inline
def most(part):
    """Largest number of a buffer, which is overwritten; NaN if one is NaN."""
    for j in range(32):
        put(part, j, _more(get(part, j), get(part, j + 32)))
    for j in range(16):
        put(part, j, _more(get(part, j), get(part, j + 16)))
    for j in range(8):
        put(part, j, _more(get(part, j), get(part, j + 8)))
    for j in range(4):
        put(part, j, _more(get(part, j), get(part, j + 4)))
    return _more(_more(get(part, 0), get(part, 2)), _more(get(part, 1), get(part, 3)))


@inline
def inside(k, i, rows, j, columns):
    """Whether some key of a block counts for some of its queries."""
    return k.band == 0 or (j <= i + rows - 1 + k.after and j + columns - 1 + k.before >= i)


@inline
def hidden(k, spots, first, rows):
    """Whether some of these queries has to see all keys: it has no score above half of `low`.
    spots: two floats of each query, its largest score first."""
    result = False
    for r in range(first, first + rows):
        result = result or not _ld32(spots, 2 * r) > k.low * HALF
    return result


@inline
def _banded(k, row, i, j, count):
    """The band, on `count` keys from j on."""
    begin, end = max(0, min(count, i - k.before - j)), max(0, min(count, i + k.after + 1 - j))
    end = max(begin, end)
    for c in range(begin):
        put(row, c, get(row, c) + k.low if k.band == ADDED else k.low)
    for c in range(end, count):
        put(row, c, get(row, c) + k.low if k.band == ADDED else k.low)


@functools.cache
def scores(B):
    """Inline (k, row, tile, r, z, h, i, j, count): row r of a tile of products becomes scores of
    query i and `count` keys from j on, -INF behind those."""
    ld = B.ld

    @inline
    def score(k, row, tile, r, z, h, i, j, count):
        _load(row, tile, r * COLUMNS, COLUMNS, ZERO)
        for c in range(COLUMNS):
            put(row, c, get(row, c) * k.scale)
        if k.bias != 0:
            offset = z * k.bz + h * k.bh + i * k.br + j * k.bc
            for c in range(count):
                put(row, c, get(row, c) + ld(k.bias, offset + c * k.bc))
        if k.band != 0 and k.first != 0:
            _banded(k, row, i, j, count)
        if k.mask != 0:
            offset = z * k.mz + h * k.mh + i * k.mr + j * k.mc
            for c in range(count):
                if (ld_u8(k.mask, offset + c * k.mc) != 0) != (k.keep != 0):
                    put(row, c, get(row, c) + k.fill if k.how == ADDED else k.fill)
        if k.band != 0 and k.first == 0:
            _banded(k, row, i, j, count)
        for c in range(count, COLUMNS):
            put(row, c, -INF)

    return score


@inline
def unmoved(k, row, z, h, i, j, count):
    """What masks have replaced has no gradient: zeros in a row of gradients of scores."""
    if k.mask != 0 and k.how == REPLACED:
        offset = z * k.mz + h * k.mh + i * k.mr + j * k.mc
        for c in range(count):
            if (ld_u8(k.mask, offset + c * k.mc) != 0) != (k.keep != 0):
                put(row, c, ZERO)
    if k.band == REPLACED:
        begin, end = max(0, min(count, i - k.before - j)), max(0, min(count, i + k.after + 1 - j))
        end = max(begin, end)
        for c in range(begin):
            put(row, c, ZERO)
        for c in range(end, count):
            put(row, c, ZERO)


@inline
def drop(k, row, z, h, i, j, count):
    """Weights, or gradients of them, that dropout keeps, scaled; zeros in place of the others."""
    random, scale = stream(k.ctl, k.key), ONE / (ONE - k.p)
    place = ((z * k.z2 + h) * k.m + i) * k.n + j
    for c in range(count):
        dropped = fraction(hash32(random, place + c)) < k.p
        put(row, c, ZERO if dropped else get(row, c) * scale)


@functools.cache
def slopes(B):
    """Inline (k, row, slope, tile, part, r, z, h, i, j, count): of row r of a tile of products and
    one of gradients of weights, which are query i and `count` keys from j on, `row` gets weights
    and `slope` gradients of scores."""
    score = scores(B)

    @inline
    def derive(k, row, slope, tile, part, r, z, h, i, j, count):
        offset = (z * k.z2 + h) * k.m + i
        top, over, delta = (
            _ld32(k.stat, 2 * offset),
            _ld32(k.stat, 2 * offset + 1),
            _ld32(k.delta, offset),
        )
        score(k, row, tile, r, z, h, i, j, count)
        _load(slope, part, r * COLUMNS, count, ZERO)
        if k.p != ZERO:
            drop(k, slope, z, h, i, j, count)
        for c in range(COLUMNS):
            weight = exp(get(row, c) - top) * over if over != ZERO else ZERO
            put(row, c, weight)
            put(slope, c, weight * (get(slope, c) - delta) * k.scale)
        unmoved(k, slope, z, h, i, j, count)

    return derive
