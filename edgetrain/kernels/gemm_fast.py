"""gemm in tiles of packed float32 panels: the variants for processors with vectors.

A tile of c (MT x NT) stays in scratch while blocks of KC terms are added to it: pack both operands
to float32, multiply in register tiles. An element of c is a chain of fma over each block of k, the
blocks added in order; it depends neither on tiles nor on threads nor on lanes. The tile of
registers is taken per vector length, vectors are 16 floats wide and split where hardware's are
shorter. Source: Goto and van de Geijn 2008; here panels of both operands are small enough for L1
and L2 of small processors.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .gemm import CHECK, element_store, operands
from .gemm_tile import KC, MT, NT, WIDTH, copier, micro_kernel, transposer
from .jit import inline
from .registry import kernel
from .words.prim import FP32, div, mod
from .words.rng import stream

BAND_FLOATS = 1 << 17  # of a that consecutive tiles share
AC_FLOATS = f"({KC} + {NT})*min({MT}, z1*z2*m)"
B_FLOATS = f"{KC}*min({NT}, {WIDTH}*((max(m, n) + {WIDTH - 1})//{WIDTH}))"
SCRATCH = f"4*({AC_FLOATS} + {B_FLOATS})"


class Side(NamedTuple):
    """One of the two factors: its address, and its strides along batches, its own dimension of the
    result, and the contracted axes."""

    address: int
    z1: int
    z2: int
    own: int
    k2: int
    k: int


class Panels(NamedTuple):
    """Addresses in scratch: packed blocks of both factors, the tile of the result."""

    a: int
    b: int
    c: int


@functools.cache
def _packer(storage, side: int):
    """Inline (source, at, row step, column step, panel, panel's row step, rows, columns).

    Copies a block to a panel in float32 whose columns are contiguous. Columns of a panel up to
    the next multiple of `side` may be overwritten.
    """
    copy, transpose = copier(storage), transposer(storage, side)
    ld, st = storage.ld, FP32.st

    @inline
    def pack(source, at, sr, sc, panel, step, rows, columns):
        if sc == 1 and columns >= WIDTH:
            for r in range(rows):
                for c0 in range(0, columns, WIDTH):
                    c = min(c0, columns - WIDTH)
                    copy(source, at + r * sr + c, panel, r * step + c)
        elif sr == 1 and rows >= side:
            for c in range(0, columns, side):
                valid = min(side, columns - c)
                for r0 in range(0, rows, side):
                    r = min(r0, rows - side)
                    transpose(source, at + r + c * sc, sc, valid, panel, r * step + c, step)
        else:
            for r in range(rows):
                for c in range(columns):
                    st(panel, r * step + c, ld(source, at + r * sr + c * sc))

    return pack


@functools.cache
def _sweeper(tall: int, vectors: int):
    """Inline (a, b, c, rows, k, add): a column of register tiles `vectors` wide."""
    micro_tall, micro_4, micro_2, micro_1 = (micro_kernel(h, vectors) for h in (tall, 4, 2, 1))
    a_row, c_row = 4 * KC, 4 * NT

    @inline
    def sweep(a, b, c, rows, k, add):
        i = 0
        while i + tall <= rows:
            micro_tall(a + i * a_row, b, c + i * c_row, k, add)
            i += tall
        if i + 4 <= rows:
            micro_4(a + i * a_row, b, c + i * c_row, k, add)
            i += 4
        if i + 2 <= rows:
            micro_2(a + i * a_row, b, c + i * c_row, k, add)
            i += 2
        if i < rows:
            micro_1(a + i * a_row, b, c + i * c_row, k, add)

    return sweep


@functools.cache
def _multiplier(tall: int, vectors: int):
    """Inline (a, b, c, rows, columns, k, add): the tile of c from packed panels."""
    wide, narrow = _sweeper(tall, vectors), _sweeper(tall, 1)
    panel, across = 4 * KC * WIDTH, vectors * WIDTH

    @inline
    def multiply(a, b, c, rows, columns, k, add):
        j = 0
        while j + across - WIDTH < columns:
            wide(a, b + div(j, WIDTH) * panel, c + 4 * j, rows, k, add)
            j += across
        while j < columns:
            narrow(a, b + div(j, WIDTH) * panel, c + 4 * j, rows, k, add)
            j += WIDTH

    return multiply


@functools.cache
def _finisher(C):
    """Inline (k, tile, rows, columns, c0, bias, bias step, key): a tile goes to c."""
    put, ld32 = element_store(C), FP32.ld

    @inline
    def finish(k, tile, rows, columns, c0, bias, bias_step, random_key):
        for i in range(rows):
            for j in range(columns):
                value = k.alpha * ld32(tile, i * NT + j)
                if bias != 0:
                    value += ld32(bias, j * bias_step)
                put(k.c, c0 + i * k.cm + j, value, k.acc, k.sr, random_key)

    return finish


@functools.cache
def _accumulator(A, B, tall: int, vectors: int, side: int):
    """Inline function that makes a tile of c in scratch: packs and multiplies block by block."""
    pack_a, pack_b, copy_b = _packer(A, side), _packer(B, side), copier(B)
    multiply = _multiplier(tall, vectors)

    @inline
    def pack_columns(b, b0, panel, terms, columns):
        # whole rows at once: neighbouring lines of a page together
        whole = columns - mod(columns, WIDTH) if b.own == 1 else 0
        for r in range(terms if whole > 0 else 0):
            for j in range(0, whole, WIDTH):
                copy_b(b.address, b0 + r * b.k + j, panel, j * KC + r * WIDTH)
        for j in range(whole, columns, WIDTH):
            width, to = min(WIDTH, columns - j), panel + 4 * j * KC
            pack_b(b.address, b0 + j * b.own, b.k, b.own, to, WIDTH, terms, width)

    @inline
    def accumulate(a, b, a0, b0, panels, rows, columns, k2, k):
        add = 0
        for q in range(k2):
            for p in range(0, k, KC):
                terms, a_at, b_at = min(KC, k - p), a0 + q * a.k2, b0 + q * b.k2
                pack_a(a.address, a_at + p * a.k, a.own, a.k, panels.a, KC, rows, terms)
                pack_columns(b, b_at + p * b.k, panels.b, terms, columns)
                multiply(panels.a, panels.b, panels.c, rows, columns, terms, add)
                add = 1

    return accumulate


def _fast(tall: int, vectors: int, side: int) -> Callable:
    """The factory for register tiles of `tall` x `vectors` and transposes of `side`."""

    def factory(A, B, C):
        accumulate, finish = _accumulator(A, B, tall, vectors, side), _finisher(C)
        swappable = A.name == B.name

        def run(thread, nthreads, k):
            random_key = stream(k.ctl, k.key) if k.sr != 0 and k.ctl != 0 else np.uint32(0)
            ws_b = k.ws + 4 * KC * min(MT, k.z1 * k.z2 * k.m)
            wide = WIDTH * div(max(k.m, k.n) + WIDTH - 1, WIDTH)
            panels = Panels(k.ws, ws_b, ws_b + 4 * KC * min(NT, wide))
            z1, z2, m, n, k2, terms, bias_step = k.z1, k.z2, k.m, k.n, k.k2, k.k, 1
            # both contracted axes run as one
            merged = terms == 1 or (k.ak2 == terms * k.ak and k.bk2 == terms * k.bk)
            a = Side(k.a, k.az1, k.az2, k.am, k.ak2, k.ak2 if terms == 1 else k.ak)
            b = Side(k.b, k.bz1, k.bz2, k.bn, k.bk2, k.bk2 if terms == 1 else k.bk)
            terms, k2 = (terms * k2, 1) if merged else (terms, k2)
            if swappable and n == 1 and k.cm == 1:
                # a column of results lies like a row: make it one
                a, b, n, m, bias_step = b, a, m, 1, 0
            if b.z2 == 0 and a.z2 == m * a.own and k.cz2 == m * k.cm:
                m, z2 = m * z2, 1
            if z2 == 1 and b.z1 == 0 and a.z1 == m * a.own and k.cz1 == m * k.cm:
                m, z1 = m * z1, 1
            mt, nt = MT, NT
            while z1 * z2 * div(m + mt - 1, mt) * div(n + nt - 1, nt) < nthreads and mt > 8:
                mt, nt = (mt, nt >> 1) if nt > 32 else (mt >> 1, nt)
            tm, tn = div(m + mt - 1, mt), div(n + nt - 1, nt)
            # tiles of a band of rows go down its columns: its part of a stays in L2
            band = max(1, min(4, div(BAND_FLOATS, mt * k2 * terms)))
            tasks = z1 * z2 * tm * tn
            for task in range(div(tasks * thread, nthreads), div(tasks * (thread + 1), nthreads)):
                z, at = div(task, tm * tn), mod(task, tm * tn)
                p1, p2 = div(z, z2), mod(z, z2)
                first = div(at, band * tn) * band
                height, place = min(band, tm - first), at - first * tn
                i, j = (first + mod(place, height)) * mt, div(place, height) * nt
                rows, columns = min(mt, m - i), min(nt, n - j)
                a0 = p1 * a.z1 + p2 * a.z2 + i * a.own
                b0 = p1 * b.z1 + p2 * b.z2 + j * b.own
                accumulate(a, b, a0, b0, panels, rows, columns, k2, terms)
                c0 = p1 * k.cz1 + p2 * k.cz2 + i * k.cm + j
                bias_at = 0 if k.bias == 0 else k.bias + 4 * j * bias_step
                finish(k, panels.c, rows, columns, c0, bias_at, bias_step, random_key)

        return run

    factory.__doc__ = f"gemm as the plain variant, in register tiles of {tall} x {16 * vectors}."
    return factory


for _lanes, _tall, _vectors, _side in ((16, 8, 2, 16), (8, 6, 1, 8), (4, 4, 1, 4)):
    kernel(
        "gemm",
        operands(SCRATCH),
        variant=f"tiles{_lanes}",
        when=f"lanes == {_lanes} and z1*z2*m*n*k2*k > 512",
        check=CHECK,
    )(_fast(_tall, _vectors, _side))
