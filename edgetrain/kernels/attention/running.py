"""The softmax of a block of queries, carried from one block of keys to the next."""

import functools
from typing import NamedTuple

from ..language.block import get, put
from ..language.inlining import inline
from ..language.lanes import loader, storer
from ..language.mathf import INF, ONE, ZERO, exp
from ..language.prim import FP32
from .blocks import Block, first_query
from .layout import COLUMNS
from .panels import clear
from .scores import drop, most, scores, total

_ld32, _st32, _load, _store = FP32.ld, FP32.st, loader(FP32.ld), storer(FP32.st)


class Running(NamedTuple):
    """Addresses of a tile of products; of each query's sum of weighted rows of v, `width` floats;
    of its spot: the largest score so far and the sum of exponentials relative to it."""

    tile: int
    sums: int
    spots: int
    width: int


@inline
def begin(state: Running, rows):
    """Initialize for queries that have seen no key yet."""
    clear(state.sums, rows * state.width)
    for r in range(rows):
        _st32(state.spots, 2 * r, -INF)
        _st32(state.spots, 2 * r + 1, ZERO)


@functools.cache
def weigher(B):
    """Inline (args, state, block, r, j, count, row, part): turn row r of a tile of products with
    `count` keys from j on into weights, and rescale the sums so far. row, part: buffers."""
    score = scores(B)

    @inline
    def weigh(args, state: Running, block: Block, r, j, count, row, part):
        tile, sums, spots, width = state.tile, state.sums, state.spots, state.width
        z, h, i = block.z, block.h, block.i + r
        score(args, row, tile, r, z, h, i, j, count)
        for c in range(COLUMNS):
            put(part, c, get(row, c))
        old, high = _ld32(spots, 2 * r), most(part)
        new_top = old if old > high or old != old else high
        if new_top == -INF:
            for c in range(COLUMNS):
                put(row, c, ZERO)
            _store(row, tile, r * COLUMNS, COLUMNS)
            return
        for c in range(COLUMNS):
            put(row, c, exp(get(row, c) - new_top))
            put(part, c, get(row, c))
        factor = exp(old - new_top)
        _st32(spots, 2 * r, new_top)
        _st32(spots, 2 * r + 1, _ld32(spots, 2 * r + 1) * factor + total(part))
        if args.p != ZERO:
            drop(args, row, z, h, i, j, count)
        _store(row, tile, r * COLUMNS, COLUMNS)
        if factor != ONE:
            for c in range(width):
                _st32(sums, r * width + c, _ld32(sums, r * width + c) * factor)

    return weigh


@functools.cache
def finisher(Y):
    """Inline (args, state, block, row): write y and stat of a block after the last key."""
    put_y = storer(Y.st)

    @inline
    def finish(args, state: Running, block: Block, row):
        sums, spots, width = state.sums, state.spots, state.width
        for r in range(block.rows):
            top, mass = _ld32(spots, 2 * r), _ld32(spots, 2 * r + 1)
            lost = args.guard != 0 and not mass > ZERO
            over = ZERO if lost else ONE / mass
            to = block.z * args.yz + block.h * args.yh + (block.i + r) * args.yr
            for c in range(0, args.e, COLUMNS):
                count = min(COLUMNS, args.e - c)
                _load(row, sums, r * width + c, count, ZERO)
                for x in range(COLUMNS):
                    put(row, x, ZERO if lost else get(row, x) * over)
                put_y(row, args.y, to + c, count)
            query = first_query(args, block) + r
            _st32(args.stat, 2 * query, ZERO if lost else top)
            _st32(args.stat, 2 * query + 1, over)

    return finish
