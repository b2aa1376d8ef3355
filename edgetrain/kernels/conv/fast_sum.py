"""Shared by the fast weight gradients: products over pixels, and their addition to `dwt`."""

import functools

from ..language.inlining import inline
from ..language.prim import FP32, Storage
from ..language.random_store import random_stores
from ..language.square import transpose16
from ..language.tile import gemm_dots, gemm_outer
from ..language.vector import WIDTH, loads, loads_first

_vld = loads(FP32)


@functools.cache
def accumulate_row(G: Storage):
    """Inline function that adds a run of float32 to a gradient accumulator."""
    vld, vfirst, put = loads(G), loads_first(G), random_stores(G)

    @inline
    def add(target, index, source, count, numbers):
        """target[index + j] += source[j], j < count, rounded stochastically; source is read in
        whole vectors."""
        for j in range(0, count, WIDTH):
            left = count - j
            old = vld(target, index + j) if left >= WIDTH else vfirst(target, index + j, left)
            put(target, index + j, old + _vld(source, j), left, numbers)

    return add


@functools.cache
def block_add(G: Storage):
    """Inline function that adds a block of sums to the accumulator."""
    add = accumulate_row(G)

    @inline
    def add_block(dwt, index, step, outputs, sums, block, turned, pitch, taps, numbers):
        """dwt[index + o * step + tap] += sums[tap][o]; `turned` is scratch of 16 x `pitch`."""
        for o in range(0, outputs, 16):
            for m in range(0, taps, 16):
                transpose16(turned + 4 * m, 4 * pitch, sums + 4 * (m * block + o), 4 * block)
            for i in range(min(16, outputs - o)):
                add(dwt, index + (o + i) * step, turned + 4 * i * pitch, taps, numbers)

    return add_block


@functools.cache
def outer_products(vectors: int):
    """Inline function that multiplies every row of a panel by transposed gradients.

    `vectors`: most vectors of output channels at a time, 4 or 1, depending on the processor's
    registers.
    """
    four, two, one = gemm_outer(4, 4), gemm_outer(8, 2), gemm_outer(8 if vectors == 4 else 4, 1)

    @inline
    def narrow_products(sums, block, count, panel, table, taps, turned, pixels):
        for v in range(count):
            for m in range(0, taps, 4):
                y, d = sums + 4 * m * block + 64 * v, turned + 64 * v
                one(y, 4 * block, panel, table + 4 * m, d, 4 * block, pixels)

    if vectors == 1:
        return narrow_products

    @inline
    def products(sums, block, count, panel, table, taps, turned, pixels):
        """sums[tap][o] += sum over pixels of panel[table[tap] + p] * turned[p][o].

        Rows of sums and turned have `block` floats; `count` vectors of them are computed. The table
        and sums have rows up to a multiple of 8 taps.
        """
        v = 0
        while v < count:
            step = 4 if count - v >= 4 else (2 if count - v >= 2 else 1)
            for m in range(0, taps, 4 if step == 4 else 8):
                y, d = sums + 4 * m * block + 64 * v, turned + 64 * v
                if step == 4:
                    four(y, 4 * block, panel, table + 4 * m, d, 4 * block, pixels)
                elif step == 2:
                    two(y, 4 * block, panel, table + 4 * m, d, 4 * block, pixels)
                else:
                    one(y, 4 * block, panel, table + 4 * m, d, 4 * block, pixels)
            v += step

    return products


@functools.cache
def dot_products():
    """Inline function that multiplies rows of a panel by one row, lane by lane."""
    dots = gemm_dots(8)

    @inline
    def products(sums, line, panel, table, taps, pixels):
        """sums[tap][lane] += sum over vectors of panel[table[tap] + p] * line[p]; p < pixels.

        The table and sums have rows up to a multiple of 8 taps.
        """
        for q in range(0, taps, 8):
            dots(sums + 64 * q, line, panel, table + 4 * q, pixels)

    return products
