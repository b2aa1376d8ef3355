"""gemm in tiles of packed float32 panels: the variants for processors with vectors.

A tile of c (at most MT x NT) stays in scratch while blocks of KC terms are added to it: pack the
columns of a block to float32, then a few rows at a time, and multiply these in register tiles. An
element of c is a chain of fma over each block of k, the blocks added in order; it depends neither
on tiles nor on threads nor on lanes. The tile of registers is taken per vector length, vectors are
16 floats wide and split where hardware's are shorter. Source: Goto and van de Geijn 2008; here
panels of both operands are small enough for L1 and L2 of small processors.

Small products have no scratch (gemm_panels.py): what lies straight in memory is multiplied where it
is; the rest has panels of a few terms on the stack, and a chain goes on from panel to panel. Where
nothing has to be done to a sum any more, its place is c itself from the first block on.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .gemm import CHECK, operands
from .gemm_panels import KC, MT, SCRATCH, SMALL, SMALL_BLOCK, STACK, panels, small_panels
from .gemm_thin import outer_product, turner
from .gemm_tile import ADD, GO_ON, SET, Rows, copier, micro_kernel, stack, transposer
from .jit import inline
from .random_store import random_stores
from .registry import kernel
from .tiles import GEMM
from .words.prim import FP32, div, mod
from .words.rng import stream
from .words.vector import WIDTH, loads, loads_first, stores, vadd, vmul, vsplat

FEW_BLOCKS = 2  # of KC terms: more passes over a tile are for scratch, where its lines are together
ONE = np.float32(1)
BAND_FLOATS = 1 << 17  # of a that consecutive tiles share


class Side(NamedTuple):
    """One of the two factors: its address, and its strides along batches, its own dimension of the
    result, and the contracted axes."""

    address: int
    z1: int
    z2: int
    own: int
    k2: int
    k: int


class Part(NamedTuple):
    """A tile of c: its rows and columns; rows of its matrix before it, and from it on."""

    rows: int
    columns: int
    before: int
    after: int


class Lines(NamedTuple):
    """Where rows of a tile lie in c: number `first` and those after it from element `start` on;
    `even` of them are k.cm apart, the next ones `step` further."""

    start: int
    first: int
    even: int
    step: int


@functools.cache
def _row_packer(A):
    """Inline (a, at, before, after, rows, terms, panels): `Rows` of a block of the left factor,
    whose matrix has `before` rows before it and `after` from it on."""
    copy, ld, st, in_place = copier(A), A.ld, FP32.st, A.name == "f32"

    @inline
    def pack(a, at, before, after, rows, terms, panels):
        panel, pitch, small = panels.a, panels.pitch, panels.block == SMALL_BLOCK
        if in_place and small:
            return Rows(a.address + 4 * at, 4 * a.own, 4 * a.k)
        if a.k == 1 and terms >= WIDTH:
            for r in range(rows):
                for c0 in range(0, terms, WIDTH):
                    c = min(c0, terms - WIDTH)
                    copy(a.address, at + r * a.own + c, panel, r * pitch + c)
            return Rows(panel, 4 * pitch, 4)
        if a.own == 1 and before + after >= WIDTH:
            back = max(WIDTH - after, 0)
            for p in range(terms):
                copy(a.address, at + p * a.k - back, panel, p * WIDTH)
            return Rows(panel + 4 * back, 4, 4 * WIDTH)
        if in_place:
            return Rows(a.address + 4 * at, 4 * a.own, 4 * a.k)
        for r in range(rows):
            for p in range(terms):
                st(panel, r * pitch + p, ld(a.address, at + r * a.own + p * a.k))
        return Rows(panel, 4 * pitch, 4)

    return pack


@functools.cache
def _column_packer(B, side: int):
    """Inline (b, at, panel, pitch, terms, columns): a block of the right factor as vectors.

    panel[j / 16][k][j % 16]; columns of the last vector that the block has not are anything. Of
    storages that are not elements one by one it is their own (gemm_groups.py).
    """
    if hasattr(B, "column_packer"):
        return B.column_packer(side)
    copy, transpose = copier(B), transposer(B, side)
    vfirst, vst, ld, st = loads_first(B), stores(FP32), B.ld, FP32.st

    @inline
    def turn(b, at, panel, terms, columns):
        """Columns lie along k: squares of them are turned."""
        for c in range(0, columns, side):
            valid = min(side, columns - c)
            for r0 in range(0, terms, side):
                r = min(r0, terms - side)
                transpose(b.address, at + r + c * b.own, b.own, valid, panel, r * WIDTH + c, WIDTH)

    @inline
    def pack(b, at, panel, pitch, terms, columns):
        # whole rows at once: neighbouring lines of a page together
        whole = columns - mod(columns, WIDTH) if b.own == 1 else 0
        for r in range(terms if whole > 0 else 0):
            for j in range(0, whole, WIDTH):
                copy(b.address, at + r * b.k + j, panel, j * pitch + r * WIDTH)
        for j in range(whole, columns, WIDTH):
            width, to, source = min(WIDTH, columns - j), panel + 4 * j * pitch, at + j * b.own
            if b.own == 1:
                for r in range(terms):
                    vst(to, r * WIDTH, vfirst(b.address, source + r * b.k, width), WIDTH)
            elif b.k == 1 and terms >= side:
                turn(b, source, to, terms, width)
            else:
                for r in range(terms):
                    for c in range(width):
                        value = ld(b.address, source + r * b.k + c * b.own)
                        st(to, r * WIDTH + c, value)

    return pack


@functools.cache
def _sweeper(tall: int, vectors: int):
    """Inline (a, b, c, rows, columns, k, how): the tile of a panel of rows."""
    tallest = [micro_kernel(tall, v) for v in (vectors, 1)]
    four, two, one = ([micro_kernel(h, v) for v in (vectors, 1)] for h in (4, 2, 1))
    (tall_wide, tall_one), (four_wide, four_one) = tallest, four
    (two_wide, two_one), (one_wide, one_one) = two, one
    across = vectors * WIDTH

    @inline
    def wide(a, b, c, height, k, how):
        if height == tall:
            tall_wide(a, b, c, k, how)
        elif height == 4:
            four_wide(a, b, c, k, how)
        elif height == 2:
            two_wide(a, b, c, k, how)
        else:
            one_wide(a, b, c, k, how)

    @inline
    def narrow(a, b, c, height, k, how):
        if height == tall:
            tall_one(a, b, c, k, how)
        elif height == 4:
            four_one(a, b, c, k, how)
        elif height == 2:
            two_one(a, b, c, k, how)
        else:
            one_one(a, b, c, k, how)

    @inline
    def sweep(a, b, c, rows, columns, k, how):
        i = 0
        while i < rows:
            left = rows - i
            height = tall if left >= tall else (4 if left >= 4 else (2 if left >= 2 else 1))
            part, row, j = Rows(a.at + i * a.own, a.own, a.k), c.at + i * c.own, 0
            while vectors > 1 and j + across - WIDTH < columns:
                right = Rows(b.at + div(j, WIDTH) * b.own, b.own, b.k)
                wide(part, right, Rows(row + 4 * j, c.own, 0), height, k, how)
                j += across
            while j < columns:
                right = Rows(b.at + div(j, WIDTH) * b.own, b.own, b.k)
                narrow(part, right, Rows(row + 4 * j, c.own, 0), height, k, how)
                j += WIDTH
            i += height

    return sweep


@functools.cache
def _finisher(C):
    """Inline (k, tile, row, rows, columns, lines, bias, bias step, key): a tile goes to c."""
    ld32, vld32, vld32_first = FP32.ld, loads(FP32), loads_first(FP32)
    vld, vfirst, vst, put = loads(C), loads_first(C), stores(C), random_stores(C)

    @inline
    def line(k, tile, at, columns, to, bias, bias_step, random_key):
        alpha = vsplat(k.alpha)
        for j in range(0, columns, WIDTH):
            count = columns - j
            v = vmul(alpha, vld32(tile, at + j))
            if bias != 0 and bias_step == 0:
                v = vadd(v, vsplat(ld32(bias, 0)))
            elif bias != 0 and count >= WIDTH:
                v = vadd(v, vld32(bias, j))
            elif bias != 0:
                v = vadd(v, vld32_first(bias, j, count))
            if k.acc != 0 and count >= WIDTH:
                v = vadd(vld(k.c, to + j), v)
            elif k.acc != 0:
                v = vadd(vfirst(k.c, to + j, count), v)
            if k.sr != 0:
                put(k.c, to + j, v, count, random_key)
            else:
                vst(k.c, to + j, v, count)

    @inline
    def finish(k, tile, row, rows, columns, lines, bias, bias_step, random_key):
        for i in range(rows):
            at = lines.first + i
            to = lines.start + div(at, lines.even) * lines.step + mod(at, lines.even) * k.cm
            line(k, tile, i * row, columns, to, bias, bias_step, random_key)

    return finish


_vld32, _st32 = loads(FP32), stores(FP32)


@inline
def _add_tile(tile, chain, row, rows, columns):
    """tile += chain, whole vectors; a row of the chain has `row` floats."""
    for i in range(rows):
        line = tile.at + i * tile.own
        for j in range(0, columns, WIDTH):
            _st32(line, j, vadd(_vld32(line, j), _vld32(chain, i * row + j)), WIDTH)


@functools.cache
def _accumulator(A, B, tall: int, vectors: int, side: int):
    """Inline function that makes a tile of c in scratch: packs and multiplies block by block."""
    pack_rows, pack_columns = _row_packer(A), _column_packer(B, side)
    sweep, both_lie = _sweeper(tall, vectors), A.name == B.name == "f32"
    right_lies, turn_all = B.name == "f32", turner(side)  # called where it is float32

    @inline
    def accumulate(a, b, a0, b0, panels, tile, how, part, k2, k):
        rows, columns = part.rows, part.columns
        small, most = panels.block == SMALL_BLOCK, panels.most
        direct = right_lies and b.own == 1 and mod(columns, WIDTH) == 0 and (small or rows <= tall)
        if small and direct and both_lie:
            most = KC
        block = panels.block - mod(panels.block, tall)
        for q in range(k2):
            for p in range(0, k, KC):
                terms, s, to = min(KC, k - p), 0, tile
                turned = right_lies and rows == 1 and b.k == 1 and mod(terms, side) == 0
                whole = KC if turned else most
                if how == ADD and terms > whole:
                    to, how = Rows(panels.chain, 4 * panels.row, 0), SET
                while s < terms:
                    # what is left for the last panel can be turned too
                    count = min(terms - s, whole)
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
                    at = a0 + q * a.k2 + (p + s) * a.k
                    for i in range(0, rows, block):
                        height, sums = min(block, rows - i), Rows(to.at + i * to.own, to.own, 0)
                        row, before, after = at + i * a.own, part.before + i, part.after - i
                        left = pack_rows(a, row, before, after, height, count, panels)
                        if turned:
                            turn_all(left, b, right_at, to.at, columns, count, how)
                        else:
                            sweep(left, right, sums, height, columns, count, how)
                    s, how = s + count, GO_ON
                if to.at != tile.at:
                    _add_tile(tile, panels.chain, panels.row, rows, columns)
                how = ADD

    return accumulate


def _fast(tall: int, vectors: int, side: int) -> Callable:
    """The factory for register tiles of `tall` x `vectors` and transposes of `side`."""

    def factory(A, B, C):
        accumulate, finish = _accumulator(A, B, tall, vectors, side), _finisher(C)
        swappable, on_stack, float_sums = A.name == B.name, stack(STACK), C.name == "f32"
        both_lie, on_small = A.name == B.name == "f32", small_panels(A)
        turn_all = turner(side)

        def run(thread, nthreads, k):
            random_key = stream(k.ctl, k.key) if k.sr != 0 and k.ctl != 0 else np.uint32(0)
            m, n, k2, terms, bias_step, one = k.m, k.n, k.k2, k.k, 1, k.z2 == 1
            z1, z2, cz2 = (1, k.z1, k.cz1) if one else (k.z1, k.z2, k.cz2)
            small = z1 * z2 * m * n * k2 * terms <= SMALL
            # both contracted axes run as one
            merged = terms == 1 or (k.ak2 == terms * k.ak and k.bk2 == terms * k.bk)
            az2, bz2 = (k.az1, k.bz1) if one else (k.az2, k.bz2)
            a = Side(k.a, k.az1, az2, k.am, k.ak2, k.ak2 if terms == 1 else k.ak)
            b = Side(k.b, k.bz1, bz2, k.bn, k.bk2, k.bk2 if terms == 1 else k.bk)
            terms, k2 = (terms * k2, 1) if merged else (terms, k2)
            if swappable and n == 1 and k.cm == 1:
                # a column of results lies like a row: make it one
                a, b, n, m, bias_step = b, a, m, 1, 0
            # batches that share b are rows, of which `even` lie evenly in c
            even = m
            if b.z2 == 0 and a.z2 == m * a.own and (cz2 == m * k.cm or m < MT and not small):
                even = m * z2 if cz2 == m * k.cm else m
                m, z2 = m * z2, 1
            if z2 == 1 and b.z1 == 0 and a.z1 == m * a.own and k.cz1 == m * k.cm and even == m:
                m, z1 = m * z1, 1
                even = m
            whole, blocks = mod(n, WIDTH) == 0, k2 * div(terms + KC - 1, KC)
            lie = both_lie and b.own == 1 and whole
            # whether a sum of chains has its place in c, be it added whole or added to; float32
            # is stored as it is, whatever is asked
            plain = float_sums and k.alpha == ONE and (k.acc == 0 or k.bias == 0)
            if both_lie and plain and k2 * z1 * z2 == 1 and even >= m:
                how = ADD if k.acc != 0 else SET
                if terms == 1 and b.own == 1 and n >= WIDTH and k.bias == 0:
                    i, stop = div(m * thread, nthreads), div(m * (thread + 1), nthreads)
                    left, to = a.address + 4 * i * a.own, k.c + 4 * i * k.cm
                    outer_product(left, a.own, b.address, to, k.cm, stop - i, n, how)
                    return
                if m == 1 and b.k == 1 and whole and mod(mod(terms, KC), side) == 0:
                    first = div(n * thread, nthreads * WIDTH) * WIDTH
                    columns = div(n * (thread + 1), nthreads * WIDTH) * WIDTH - first
                    left, to = Rows(a.address, 0, 4 * a.k), k.c + 4 * first
                    turn_all(left, b, first * b.own, to, columns, terms, how)
                    if k.bias != 0:
                        bias_at = k.bias + 4 * first * bias_step
                        lines = Lines(first, 0, 1, 0)
                        finish(k, to, 0, 1, columns, lines, bias_at, bias_step, random_key)
                    return
            plain = plain and (blocks == 1 if k.acc != 0 else small or blocks <= FEW_BLOCKS)
            plain = plain and (k.acc == 0 or lie or not small) and even >= m
            if small:
                place, mt, nt = on_small(on_stack(), blocks, lie, plain and whole)
            else:
                place, mt, nt = panels(k.ws, n, terms)
            while z1 * z2 * div(m + mt - 1, mt) * div(n + nt - 1, nt) < nthreads and mt > 8:
                mt, nt = (mt, nt >> 1) if nt > 32 else (mt >> 1, nt)
            tm, tn = div(m + mt - 1, mt), div(n + nt - 1, nt)
            # tiles of a band of rows go down its columns: its part of a stays in L2
            band = max(1, min(4, div(BAND_FLOATS, mt * k2 * terms)))
            if mt * k2 * terms > 2 * BAND_FLOATS:
                band = tm  # no part of a does: that of b, then
            tasks = z1 * z2 * tm * tn
            for task in range(div(tasks * thread, nthreads), div(tasks * (thread + 1), nthreads)):
                z, at = div(task, tm * tn), mod(task, tm * tn)
                p1, p2 = div(z, z2), mod(z, z2)
                first = div(at, band * tn) * band
                height, within = min(band, tm - first), at - first * tn
                i, j = (first + mod(within, height)) * mt, div(within, height) * nt
                rows, columns = min(mt, m - i), min(nt, n - j)
                a0 = p1 * a.z1 + p2 * a.z2 + i * a.own
                b0 = p1 * b.z1 + p2 * b.z2 + j * b.own
                c0 = p1 * k.cz1 + p2 * cz2 + j
                straight = plain and mod(columns, WIDTH) == 0
                tile, row, how = place.c, place.row, SET
                if straight:
                    tile, row, how = k.c + 4 * (c0 + i * k.cm), k.cm, ADD if k.acc != 0 else SET
                sums = Rows(tile, 4 * row, 0)
                part = Part(rows, columns, i, m - i)
                accumulate(a, b, a0, b0, place, sums, how, part, k2, terms)
                if not straight or k.bias != 0:
                    bias_at = 0 if k.bias == 0 else k.bias + 4 * j * bias_step
                    to = Lines(c0, i, even, cz2)
                    finish(k, tile, row, rows, columns, to, bias_at, bias_step, random_key)

        return run

    factory.__doc__ = f"gemm as the plain variant, in register tiles of {tall} x {16 * vectors}."
    return factory


for _lanes, _tile in GEMM.items():
    kernel(
        "gemm",
        operands(SCRATCH),
        variant=f"tiles{_lanes}",
        when=f"lanes == {_lanes} and z1*z2*m*n*k2*k > 512",
        check=CHECK,
    )(_fast(*_tile))
