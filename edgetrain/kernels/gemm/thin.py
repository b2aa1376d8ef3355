"""Products without tiles: one term (a column times a row), or one row (a row times columns).

Linear layers with a microbatch of one sample consist of these. Each element of the large factor is
needed once, so nothing is packed. A product with one term is computed line by line in the memory
order of the result, where tiles would go down it in short pieces. One row is computed from rows of
the large factor, long pieces of them at once, or from columns that are transposed in registers.
"""

import functools

import numpy as np

from ..language.inlining import inline
from ..language.number import fma
from ..language.prim import FP32, div, mod
from ..language.tile import ADD, SET, Rows, micro_kernel, turned_row
from ..language.vector import WIDTH, loads, loads_first, prefetch, stores, vsplat
from .finish import Lines, finisher
from .panels import KC

ZERO = np.float32(0)
ABREAST = {16: 8, 8: 4, 4: 4}  # vectors of 16 columns of a line, by floats of a register
AHEAD = 1024  # bytes to prefetch ahead: hardware prefetchers stop at the end of a page
_ld, _vld, _vfirst, _vst = FP32.ld, loads(FP32), loads_first(FP32), stores(FP32)


@inline
def outer_product(a, step, b, c, row, rows, columns, how):
    """c[rows][columns] (+)= a[rows] * b[columns], float32; each product is rounded as a chain of
    one fma from zero.

    a: elements `step` apart; c: rows `row` elements apart; how: SET or ADD.
    """
    full, none = columns - mod(columns, WIDTH), vsplat(ZERO)
    for i in range(rows):
        number, line = vsplat(_ld(a, i * step)), c + 4 * i * row
        if how == ADD:
            for j in range(0, full, WIDTH):
                prefetch(line + 4 * j + AHEAD)
                value = _vld(line, j) + fma(number, _vld(b, j), none)
                _vst(line, j, value, WIDTH)
        else:
            for j in range(0, full, WIDTH):
                _vst(line, j, fma(number, _vld(b, j), none), WIDTH)
        if full < columns:
            count = columns - full
            value = fma(number, _vfirst(b, full, count), none)
            if how == ADD:
                value = _vfirst(line, full, count) + value
            _vst(line, full, value, count)


@functools.cache
def turner(side: int):
    """Inline (left, b, offset, c, columns, terms, how): c[columns] (+)= left[terms] * b, float32.

    The columns of b, from its element `offset` on, are contiguous along the terms; see
    `turned_row`.
    """
    row_of, pair_of = turned_row(FP32, side, KC), turned_row(FP32, side, KC, 2 * WIDTH)

    @inline
    def turn_all(left, b, offset, c, columns, terms, how):
        j = 0
        while columns - j > WIDTH:  # two chains at once: neither waits for its own last fma
            valid = min(2 * WIDTH, columns - j)
            pair_of(left, b.address, offset + j * b.step, b.step, valid, c + 4 * j, terms, how)
            j += 2 * WIDTH
        if j < columns:
            row_of(left, b.address, offset + j * b.step, b.step, columns - j, c + 4 * j, terms, how)

    return turn_all


@functools.cache
def liner(side: int):
    """Inline (left, b, offset, c, columns, terms, how): c[columns] (+)= left[terms] * b, float32.

    The rows of b, from its element `offset` on, are contiguous along the columns, in whole vectors.
    Chains have KC terms and are summed in order.
    """
    across = ABREAST[side] * WIDTH
    wide_of, one_of = micro_kernel(1, ABREAST[side]), micro_kernel(1, 1)

    @inline
    def line_all(left, b, offset, c, columns, terms, how):
        j = 0
        while j < columns:
            wide = columns - j >= across
            for p in range(0, terms, KC):
                count, further = min(KC, terms - p), how if p == 0 else ADD
                part = Rows(left.address + p * left.k, 0, left.k)
                right = Rows(b.address + 4 * (offset + p * b.k + j), 4 * WIDTH, 4 * b.k)
                if wide:
                    wide_of(part, right, Rows(c + 4 * j, 0, 0), count, further)
                else:
                    one_of(part, right, Rows(c + 4 * j, 0, 0), count, further)
            j += across if wide else WIDTH

    return line_all


@functools.cache
def thin(C, side: int):
    """Inline (thread, nthreads, args, product, random key) -> whether a product of one float32
    batch, summed in c, has one term or one row; if so, the thread's part of it is computed."""
    turn_all, line_all, finish = turner(side), liner(side), finisher(C)

    @inline
    def make(thread, nthreads, args, p, random_key):
        a, b, how = p.a, p.b, ADD if args.acc != 0 else SET
        if p.k == 1 and b.step == 1 and p.n >= WIDTH and args.bias == 0:
            i, stop = div(p.m * thread, nthreads), div(p.m * (thread + 1), nthreads)
            left, to = a.address + 4 * i * a.step, args.c + 4 * i * args.cm
            outer_product(left, a.step, b.address, to, args.cm, stop - i, p.n, how)
            return True
        is_full = p.m == 1 and mod(p.n, WIDTH) == 0
        turned = b.k == 1 and mod(mod(p.k, KC), side) == 0
        if is_full and (turned or (b.step == 1 and (args.acc == 0 or p.k <= KC))):
            first = div(p.n * thread, nthreads * WIDTH) * WIDTH
            columns = div(p.n * (thread + 1), nthreads * WIDTH) * WIDTH - first
            line, to = Rows(a.address, 0, 4 * a.k), args.c + 4 * first
            if turned:
                turn_all(line, b, first * b.step, to, columns, p.k, how)
            else:
                line_all(line, b, first, to, columns, p.k, how)
            if args.bias != 0:
                bias_at = args.bias + 4 * first * p.bias_step
                lines = Lines(first, 0, 1, 0)
                finish(args, to, 0, 1, columns, lines, bias_at, p.bias_step, random_key)
            return True
        return False

    return make
