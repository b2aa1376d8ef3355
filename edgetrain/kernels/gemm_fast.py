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
    """Inline (tile, c, c0, cm, rows, columns, bias, bias step, alpha, acc, sr, key)."""
    put, ld32 = element_store(C), FP32.ld

    @inline
    def finish(tile, c, c0, cm, rows, columns, bias, bias_step, alpha, acc, sr, random_key):
        for i in range(rows):
            for j in range(columns):
                value = alpha * ld32(tile, i * NT + j)
                if bias != 0:
                    value += ld32(bias, j * bias_step)
                put(c, c0 + i * cm + j, value, acc, sr, random_key)

    return finish


@functools.cache
def _accumulator(A, B, tall: int, vectors: int, side: int):
    """Inline function that makes a tile of c in scratch: packs and multiplies block by block."""
    pack_a, pack_b, copy_b = _packer(A, side), _packer(B, side), copier(B)
    multiply = _multiplier(tall, vectors)

    @inline
    def pack_columns(b, b0, bk, bn, panels, k, columns):
        # whole rows at once: neighbouring lines of a page together
        whole = columns - mod(columns, WIDTH) if bn == 1 else 0
        for r in range(k if whole > 0 else 0):
            for j in range(0, whole, WIDTH):
                copy_b(b, b0 + r * bk + j, panels, j * KC + r * WIDTH)
        for j in range(whole, columns, WIDTH):
            width = min(WIDTH, columns - j)
            pack_b(b, b0 + j * bn, bk, bn, panels + 4 * j * KC, WIDTH, k, width)

    @inline
    def accumulate(a, b, a0, b0, ws_a, ws_b, ws_c, rows, columns, k2, k, am, ak2, ak, bn, bk2, bk):
        add = 0
        for q in range(k2):
            for p in range(0, k, KC):
                terms = min(KC, k - p)
                pack_a(a, a0 + q * ak2 + p * ak, am, ak, ws_a, KC, rows, terms)
                pack_columns(b, b0 + q * bk2 + p * bk, bk, bn, ws_b, terms, columns)
                multiply(ws_a, ws_b, ws_c, rows, columns, terms, add)
                add = 1

    return accumulate


def _fast(tall: int, vectors: int, side: int) -> Callable:
    """The factory for register tiles of `tall` x `vectors` and transposes of `side`."""

    def factory(A, B, C):
        accumulate, finish = _accumulator(A, B, tall, vectors, side), _finisher(C)
        swappable = A.name == B.name

        def run(
            thread, nthreads, a, b, c, bias, ctl, ws,
            z1, z2, m, n, k2, k, az1, az2, am, ak2, ak, bz1, bz2, bn, bk2, bk,
            cz1, cz2, cm, na, nb, nc, alpha, acc, sr, key,
        ):  # fmt: skip
            random_key = stream(ctl, key) if sr != 0 and ctl != 0 else np.uint32(0)
            ws_b = ws + 4 * KC * min(MT, z1 * z2 * m)
            ws_c = ws_b + 4 * KC * min(NT, WIDTH * div(max(m, n) + WIDTH - 1, WIDTH))
            bias_step = 1
            if swappable and n == 1 and cm == 1:
                # a column of results lies like a row: make it one
                a, az1, az2, am, ak2, ak, b, bz1, bz2, bn, bk2, bk = (
                    b, bz1, bz2, bn, bk2, bk, a, az1, az2, am, ak2, ak
                )  # fmt: skip
                n, m, bias_step = m, 1, 0
            if k == 1 or (ak2 == k * ak and bk2 == k * bk):
                # both contracted axes run as one
                ak, bk = (ak2, bk2) if k == 1 else (ak, bk)
                k, k2 = k * k2, 1
            if bz2 == 0 and az2 == m * am and cz2 == m * cm:
                m, z2 = m * z2, 1
            if z2 == 1 and bz1 == 0 and az1 == m * am and cz1 == m * cm:
                m, z1 = m * z1, 1
            mt, nt = MT, NT
            while z1 * z2 * div(m + mt - 1, mt) * div(n + nt - 1, nt) < nthreads and mt > 8:
                mt, nt = (mt, nt >> 1) if nt > 32 else (mt >> 1, nt)
            tm, tn = div(m + mt - 1, mt), div(n + nt - 1, nt)
            # tiles of a band of rows go down its columns: its part of a stays in L2
            band = max(1, min(4, div(BAND_FLOATS, mt * k2 * k)))
            tasks = z1 * z2 * tm * tn
            for task in range(div(tasks * thread, nthreads), div(tasks * (thread + 1), nthreads)):
                z, tile = div(task, tm * tn), mod(task, tm * tn)
                p1, p2 = div(z, z2), mod(z, z2)
                first = div(tile, band * tn) * band
                height = min(band, tm - first)
                place = tile - first * tn
                i, j = (first + mod(place, height)) * mt, div(place, height) * nt
                rows, columns = min(mt, m - i), min(nt, n - j)
                a0 = p1 * az1 + p2 * az2 + i * am
                b0 = p1 * bz1 + p2 * bz2 + j * bn
                accumulate(
                    a, b, a0, b0, ws, ws_b, ws_c, rows, columns,
                    k2, k, am, ak2, ak, bn, bk2, bk,
                )  # fmt: skip
                c0 = p1 * cz1 + p2 * cz2 + i * cm + j
                bias_at = 0 if bias == 0 else bias + 4 * j * bias_step
                finish(
                    ws_c, c, c0, cm, rows, columns, bias_at, bias_step, alpha, acc, sr, random_key
                )

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
