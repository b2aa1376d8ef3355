"""gemm in tiles of packed float32 panels: the variants for processors with vectors.

A tile of c (at most MT x NT) stays in scratch while blocks of KC terms are added to it: pack the
columns of a block to float32, then a few rows at a time, and multiply these in register tiles. An
element of c is a chain of fma over each block of k, and the blocks are added in order; it depends
neither on tiles nor on threads nor on lanes. The register tile is chosen by vector length; vectors
are 16 floats wide, and are split if the hardware's are shorter. Source: Goto and van de Geijn 2008;
here panels of both operands are small enough for L1 and L2 of small processors.

Small products use no scratch (panels.py): contiguous operands are multiplied in place; others get
panels of a few terms on the stack, and a chain of sums continues from panel to panel. If sums need
no further step, they are accumulated in c itself from the first block on.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..language.block import stack
from ..language.inlining import inline
from ..language.prim import FP32, div, mod
from ..language.rng import stream
from ..language.square import copier, transposer
from ..language.tile import ADD, GO_ON, SET, Rows, micro_kernel
from ..language.tiles import GEMM
from ..language.vector import WIDTH, loads, loads_first, stores
from ..registry import kernel
from .finish import Lines, finisher, sums_in
from .panels import KC, SCRATCH, SMALL_BLOCK, STACK, panels, small_panels
from .plain import CHECK, operands
from .plan import at_once, merger, tile_at, tiled
from .thin import thin, turner

FEW_BLOCKS = 2  # most blocks of KC terms to sum in c; in scratch a tile's lines are contiguous
ONE = np.float32(1)


class Part(NamedTuple):
    """A tile of c: rows, columns, and rows of its matrix before the tile and from its start on."""

    rows: int
    columns: int
    before: int
    after: int


@functools.cache
def _row_packer(A):
    """Inline (a, offset, before, after, rows, terms, panels) -> `Rows` of a block of the left
    factor, whose matrix has `before` rows before it and `after` rows from its first one on."""
    copy, ld, st, in_place = copier(A), A.ld, FP32.st, A.single

    @inline
    def pack(a, offset, before, after, rows, terms, panels):
        panel, pitch, small = panels.a, panels.pitch, panels.block == SMALL_BLOCK
        if in_place and small:
            return Rows(a.address + 4 * offset, 4 * a.step, 4 * a.k)
        if a.k == 1 and terms >= WIDTH:
            for r in range(rows):
                for c0 in range(0, terms, WIDTH):
                    c = min(c0, terms - WIDTH)
                    copy(a.address, offset + r * a.step + c, panel, r * pitch + c)
            return Rows(panel, 4 * pitch, 4)
        if a.step == 1 and before + after >= WIDTH:
            back = max(WIDTH - after, 0)
            for p in range(terms):
                copy(a.address, offset + p * a.k - back, panel, p * WIDTH)
            return Rows(panel + 4 * back, 4, 4 * WIDTH)
        if in_place:
            return Rows(a.address + 4 * offset, 4 * a.step, 4 * a.k)
        for r in range(rows):
            for p in range(terms):
                st(panel, r * pitch + p, ld(a.address, offset + r * a.step + p * a.k))
        return Rows(panel, 4 * pitch, 4)

    return pack


@functools.cache
def _column_packer(B, side: int):
    """Inline (b, offset, panel, pitch, terms, columns): pack a block of the right factor as
    vectors.

    panel[j / 16][k][j % 16]; in the last vector, columns beyond the block are undefined. Storages
    without single elements have their own packer (groups.py).
    """
    if hasattr(B, "column_packer"):
        return B.column_packer(side)
    copy, transpose = copier(B), transposer(B, side)
    vfirst, vst, ld, st = loads_first(B), stores(FP32), B.ld, FP32.st

    @inline
    def turn(b, offset, panel, terms, columns):
        """Pack columns that are contiguous along k, by transposing squares."""
        for c in range(0, columns, side):
            valid = min(side, columns - c)
            for r0 in range(0, terms, side):
                r = min(r0, terms - side)
                transpose(
                    b.address, offset + r + c * b.step, b.step, valid, panel, r * WIDTH + c, WIDTH
                )

    @inline
    def pack(b, offset, panel, pitch, terms, columns):
        # whole rows at once, so that neighbouring cache lines of a page are read together
        full = columns - mod(columns, WIDTH) if b.step == 1 else 0
        for r in range(terms if full > 0 else 0):
            for j in range(0, full, WIDTH):
                copy(b.address, offset + r * b.k + j, panel, j * pitch + r * WIDTH)
        for j in range(full, columns, WIDTH):
            width, to, source = min(WIDTH, columns - j), panel + 4 * j * pitch, offset + j * b.step
            if b.step == 1:
                for r in range(terms):
                    vst(to, r * WIDTH, vfirst(b.address, source + r * b.k, width), WIDTH)
            elif b.k == 1 and terms >= side:
                turn(b, source, to, terms, width)
            else:
                for r in range(terms):
                    for c in range(width):
                        value = ld(b.address, source + r * b.k + c * b.step)
                        st(to, r * WIDTH + c, value)

    return pack


@functools.cache
def _column_of_tiles(tall: int, vectors: int):
    """Inline (a, b, c, height, k, how): one register tile of `height` rows x `vectors` vectors.

    Heights are `tall`, 4, 2 and 1, each with a micro kernel of its own.
    """
    tallest, four, two, one = (micro_kernel(height, vectors) for height in (tall, 4, 2, 1))

    @inline
    def multiply(a, b, c, height, k, how):
        if height == tall:
            tallest(a, b, c, k, how)
        elif height == 4:
            four(a, b, c, k, how)
        elif height == 2:
            two(a, b, c, k, how)
        else:
            one(a, b, c, k, how)

    return multiply


@functools.cache
def _sweeper(tall: int, vectors: int):
    """Inline (a, b, c, rows, columns, k, how): multiply packed rows by packed columns into c.

    c is split into register tiles, rows first: as many of `tall` rows as fit, then of 4, 2 and 1.
    In each row of tiles, as many as needed have `vectors` vectors of columns; the rest, at most
    `vectors` - 1 vectors, is done one vector at a time. `how` is SET, GO_ON or ADD.
    """
    wide, narrow = _column_of_tiles(tall, vectors), _column_of_tiles(tall, 1)
    across = vectors * WIDTH

    @inline
    def sweep(a, b, c, rows, columns, k, how):
        i = 0
        while i < rows:
            left = rows - i
            height = tall if left >= tall else (4 if left >= 4 else (2 if left >= 2 else 1))
            part, row, j = Rows(a.address + i * a.step, a.step, a.k), c.address + i * c.step, 0
            while vectors > 1 and j + across - WIDTH < columns:
                right = Rows(b.address + div(j, WIDTH) * b.step, b.step, b.k)
                wide(part, right, Rows(row + 4 * j, c.step, 0), height, k, how)
                j += across
            while j < columns:
                right = Rows(b.address + div(j, WIDTH) * b.step, b.step, b.k)
                narrow(part, right, Rows(row + 4 * j, c.step, 0), height, k, how)
                j += WIDTH
            i += height

    return sweep


_vld32, _st32 = loads(FP32), stores(FP32)


@inline
def _add_tile(tile, chain, row, rows, columns):
    """tile += chain, in whole vectors; a row of the chain has `row` floats."""
    for i in range(rows):
        line = tile.address + i * tile.step
        for j in range(0, columns, WIDTH):
            _st32(line, j, _vld32(line, j) + _vld32(chain, i * row + j), WIDTH)


@functools.cache
def _accumulator(A, B, tall: int, vectors: int, side: int):
    """Inline function that computes a tile of c in scratch: packs and multiplies block by block."""
    pack_rows, pack_columns = _row_packer(A), _column_packer(B, side)
    sweep, both_lie = _sweeper(tall, vectors), A.single and B.single
    right_lies, turn_all = B.single, turner(side)  # used for float32

    @inline
    def accumulate(a, b, a0, b0, panels, tile, how, part, k2, k):
        rows, columns = part.rows, part.columns
        small, most = panels.block == SMALL_BLOCK, panels.most
        direct = right_lies and b.step == 1 and mod(columns, WIDTH) == 0 and (small or rows <= tall)
        if small and direct and both_lie:
            most = KC
        block = panels.block - mod(panels.block, tall)
        for q in range(k2):
            for p in range(0, k, KC):
                terms, s, to = min(KC, k - p), 0, tile
                turned = right_lies and rows == 1 and b.k == 1 and mod(terms, side) == 0
                depth = KC if turned else most
                if how == ADD and terms > depth:
                    to, how = Rows(panels.chain, 4 * panels.row, 0), SET
                while s < terms:
                    # leave enough terms for the last panel to be transposed too
                    count = min(terms - s, depth)
                    if count > side and 0 < terms - s - count < side:
                        count -= side
                    right_at = b0 + q * b.k2 + (p + s) * b.k
                    if turned:
                        right = Rows(0, 0, 0)
                    elif direct:
                        right = Rows(b.address + 4 * right_at, 4 * WIDTH, 4 * b.k)
                    else:
                        pack_columns(b, right_at, panels.b, panels.pitch, count, columns)
                        right = Rows(panels.b, 4 * WIDTH * panels.pitch, 4 * WIDTH)
                    offset = a0 + q * a.k2 + (p + s) * a.k
                    for i in range(0, rows, block):
                        height, sums = (
                            min(block, rows - i),
                            Rows(to.address + i * to.step, to.step, 0),
                        )
                        row, before, after = offset + i * a.step, part.before + i, part.after - i
                        left = pack_rows(a, row, before, after, height, count, panels)
                        if turned:
                            turn_all(left, b, right_at, to.address, columns, count, how)
                        else:
                            sweep(left, right, sums, height, columns, count, how)
                    s, how = s + count, GO_ON
                if to.address != tile.address:
                    _add_tile(tile, panels.chain, panels.row, rows, columns)
                how = ADD

    return accumulate


def _fast(tall: int, vectors: int, side: int) -> Callable:
    """Factory for register tiles of `tall` x `vectors` and transposes of `side`."""

    def factory(A, B, C):
        accumulate, finish = _accumulator(A, B, tall, vectors, side), finisher(C)
        merge, both_lie = merger(A.name == B.name), A.single and B.single
        on_stack, on_small, made_thin = stack(STACK), small_panels(A), thin(C, side)
        float_sums = C.single
        fetch, keep = sums_in(C)

        def run(thread, nthreads, args):
            random_key = (
                stream(args.ctl, args.key) if args.sr != 0 and args.ctl != 0 else np.uint32(0)
            )
            p = merge(args)
            a, b, even = p.a, p.b, p.even >= p.m
            # whether sums of chains can be computed in c itself, set or added to; float32 is never
            # rounded, whatever sr says
            plain = float_sums and args.alpha == ONE and (args.acc == 0 or args.bias == 0)
            straight = both_lie and plain and p.k2 * p.z1 * p.z2 == 1 and even
            if straight and made_thin(thread, nthreads, args, p, random_key):
                return
            is_full, blocks = mod(p.n, WIDTH) == 0, p.k2 * div(p.k + KC - 1, KC)
            lie = both_lie and b.step == 1 and is_full
            plain = plain and (blocks == 1 if args.acc != 0 else p.small or blocks <= FEW_BLOCKS)
            plain = plain and (args.acc == 0 or lie or not p.small) and even
            if p.small:
                place, mt, nt = on_small(on_stack(), blocks, lie, plain and is_full)
            else:
                place, mt, nt = panels(args.ws, p.n, p.k)
            terms = at_once(p, mt) if float_sums and args.acc == 0 else p.k
            t = tiled(p, mt, nt, nthreads, p.k2 * terms)
            tasks = p.z1 * p.z2 * t.tm * t.tn
            first, stop = div(tasks * thread, nthreads), div(tasks * (thread + 1), nthreads)
            for turn in range(0, div(p.k + terms - 1, terms) * (stop - first)):
                s, task = div(turn, stop - first) * terms, first + mod(turn, stop - first)
                p1, p2, i, j = tile_at(p, t, task)
                rows, columns = min(t.mt, p.m - i), min(t.nt, p.n - j)
                a0 = p1 * a.z1 + p2 * a.z2 + i * a.step + s * a.k
                b0 = p1 * b.z1 + p2 * b.z2 + j * b.step + s * b.k
                c0 = p1 * args.cz1 + p2 * p.cz2 + j
                straight = plain and mod(columns, WIDTH) == 0
                tile, row, how = place.c, place.row, SET
                if straight:
                    tile = args.c + 4 * (c0 + i * args.cm)
                    row = args.cm
                    how = ADD if args.acc != 0 else SET
                elif s > 0:
                    fetch(args, tile, row, rows, columns, c0 + i * args.cm)
                    how = ADD
                sums = Rows(tile, 4 * row, 0)
                part = Part(rows, columns, i, p.m - i)
                accumulate(a, b, a0, b0, place, sums, how, part, p.k2, min(terms, p.k - s))
                if s + terms < p.k:
                    keep(args, tile, row, rows, columns, c0 + i * args.cm)
                elif not straight or args.bias != 0:
                    bias_at = 0 if args.bias == 0 else args.bias + 4 * j * p.bias_step
                    to = Lines(c0, i, p.even, p.cz2)
                    finish(args, tile, row, rows, columns, to, bias_at, p.bias_step, random_key)

        return run

    factory.__doc__ = f"Like the plain variant, in register tiles of {tall} x {16 * vectors}."
    return factory


for _lanes, _tile in GEMM.items():
    kernel(
        "gemm",
        operands(SCRATCH),
        variant=f"tiles{_lanes}",
        when=f"lanes == {_lanes} and z1*z2*m*n*k2*k > 512",
        check=CHECK,
    )(_fast(*_tile))
