"""One row of a block of scores: masks it, turns it into weights, and computes its gradients.

A row is a buffer of COLUMNS numbers on the stack. It is summed in float32, by halves.
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

ADDED, REPLACED = 1, 2  # effects of masks
_PART = np.float32(2.0**-24)
_ld32, _load = FP32.ld, loader(FP32.ld)


@inline
def fraction(bits):
    """The upper 24 bits divided by 2^24, as in elementwise/dropout.py."""
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
    """Largest number of a buffer, which is overwritten; NaN if any is NaN."""
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
def inside(args, i, rows, j, columns):
    """Whether the band lets any of these queries see any of these keys."""
    return args.band == 0 or (j <= i + rows - 1 + args.after and j + columns - 1 + args.before >= i)


@inline
def hidden(args, spots, first, rows):
    """Whether any of these queries must see all keys because none of its scores is above half of
    `low`. spots: two floats for each query, its largest score first."""
    result = False
    for r in range(first, first + rows):
        result = result or not _ld32(spots, 2 * r) > args.low * HALF
    return result


@inline
def _banded(args, row, i, j, count):
    """Apply the band to the scores of `count` keys from j on."""
    begin, end = max(0, min(count, i - args.before - j)), max(0, min(count, i + args.after + 1 - j))
    end = max(begin, end)
    for c in range(begin):
        put(row, c, get(row, c) + args.low if args.band == ADDED else args.low)
    for c in range(end, count):
        put(row, c, get(row, c) + args.low if args.band == ADDED else args.low)


@functools.cache
def scores(B):
    """Inline (args, row, tile, r, z, h, i, j, count): load row r of a tile of products into `row`
    as the scores of query i with `count` keys from j on, -INF after them."""
    ld = B.ld

    @inline
    def score(args, row, tile, r, z, h, i, j, count):
        _load(row, tile, r * COLUMNS, COLUMNS, ZERO)
        for c in range(COLUMNS):
            put(row, c, get(row, c) * args.scale)
        if args.bias != 0:
            offset = z * args.bz + h * args.bh + i * args.br + j * args.bc
            for c in range(count):
                put(row, c, get(row, c) + ld(args.bias, offset + c * args.bc))
        if args.band != 0 and args.first != 0:
            _banded(args, row, i, j, count)
        if args.mask != 0:
            offset = z * args.mz + h * args.mh + i * args.mr + j * args.mc
            for c in range(count):
                if (ld_u8(args.mask, offset + c * args.mc) != 0) != (args.keep != 0):
                    put(row, c, get(row, c) + args.fill if args.how == ADDED else args.fill)
        if args.band != 0 and args.first == 0:
            _banded(args, row, i, j, count)
        for c in range(count, COLUMNS):
            put(row, c, -INF)

    return score


@inline
def unmoved(args, row, z, h, i, j, count):
    """In a row of gradients of scores, zero those whose scores the mask or the band replaced."""
    if args.mask != 0 and args.how == REPLACED:
        offset = z * args.mz + h * args.mh + i * args.mr + j * args.mc
        for c in range(count):
            if (ld_u8(args.mask, offset + c * args.mc) != 0) != (args.keep != 0):
                put(row, c, ZERO)
    if args.band == REPLACED:
        begin = max(0, min(count, i - args.before - j))
        end = max(0, min(count, i + args.after + 1 - j))
        end = max(begin, end)
        for c in range(begin):
            put(row, c, ZERO)
        for c in range(end, count):
            put(row, c, ZERO)


@inline
def drop(args, row, z, h, i, j, count):
    """Apply dropout to a row of weights or of their gradients: scale those kept, zero the rest."""
    random, scale = stream(args.ctl, args.key), ONE / (ONE - args.p)
    place = ((z * args.z2 + h) * args.m + i) * args.n + j
    for c in range(count):
        dropped = fraction(hash32(random, place + c)) < args.p
        put(row, c, ZERO if dropped else get(row, c) * scale)


@functools.cache
def slopes(B):
    """Inline (args, row, slope, tile, part, r, z, h, i, j, count): from row r of a tile of products
    and of a tile of gradients of weights, both for query i and `count` keys from j on, compute
    weights into `row` and gradients of scores into `slope`."""
    score = scores(B)

    @inline
    def derive(args, row, slope, tile, part, r, z, h, i, j, count):
        offset = (z * args.z2 + h) * args.m + i
        top = _ld32(args.stat, 2 * offset)
        over = _ld32(args.stat, 2 * offset + 1)
        delta = _ld32(args.delta, offset)
        score(args, row, tile, r, z, h, i, j, count)
        _load(slope, part, r * COLUMNS, count, ZERO)
        if args.p != ZERO:
            drop(args, slope, z, h, i, j, count)
        for c in range(COLUMNS):
            weight = exp(get(row, c) - top) * over if over != ZERO else ZERO
            put(row, c, weight)
            put(slope, c, weight * (get(slope, c) - delta) * args.scale)
        unmoved(args, slope, z, h, i, j, count)

    return derive
