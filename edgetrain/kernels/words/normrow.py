"""The bodies of layernorm.py: one scheme of rows and channels for all three normalisations.

x is [rows, c, s] with `groups` rows to an image; `centre` False (RMS) has neither means nor shift.
An address 0 stands for an absent operand.
"""

from typing import NamedTuple

import numpy as np

from ..jit import inline
from .block import BLOCK, get, get_wide, new, new_wide, put, put_wide
from .lanes import LANES, fold, loader, real, reset, storer
from .mathf import ONE, ZERO, sqrt64
from .prim import FP32, div, fma, fma64, mod
from .strided import filler

_ld32, _st32, _fill32 = FP32.ld, FP32.st, filler(FP32.ld)
_load32, _tree = loader(FP32.ld), fold("add")


class Rows(NamedTuple):
    """How many rows there are, of which shape, and where their statistics lie."""

    means: int
    inverses: int
    total: int
    groups: int
    c: int
    s: int


@inline
def layer(k):
    """Rows of layer normalisation."""
    return Rows(k.stat, k.stat + 4 * k.rows, k.rows, 1, k.n, 1)


@inline
def rms(k):
    """Rows of RMS normalisation."""
    return Rows(0, k.stat, k.rows, 1, k.n, 1)


@inline
def group(k):
    """Rows of group normalisation: a group of an image each."""
    rows = k.n * k.groups
    return Rows(k.stat, k.stat + 4 * rows, rows, k.groups, div(k.c, k.groups), k.s)


@inline
def _none(k):
    return 0


@inline
def _beta(k):
    return k.beta


@inline
def _dbeta(k):
    return k.dbeta


@inline
def _per_channel(out, address, absent, channel, rows, i, m):
    """out[j] = the channel's value for elements i ... i + m - 1 of a row; `absent` without one.

    `channel`: the first of the row's.
    """
    if address == 0:
        for j in range(LANES):
            put(out, j, absent)
    elif rows.s == 1:
        _load32(out, address, channel + i, m, absent)
    else:
        _fill32(out, address, channel, i, m, (1, 1, 1, 1, rows.c, rows.s), (0, 0, 0, 0, 1, 0))


def forward(S, centre):
    """body(thread, nthreads, k, rows); see layernorm.py."""
    load, store, beta = loader(S.ld), storer(S.st), _beta if centre else _none

    @inline
    def body(thread, nthreads, k, rows):
        sums, squares, value, scale, shift = new_wide(), new_wide(), new(), new(), new()
        n = rows.c * rows.s
        for row in range(
            div(rows.total * thread, nthreads), div(rows.total * (thread + 1), nthreads)
        ):
            base, channel = row * n, mod(row, rows.groups) * rows.c
            reset(sums, 0, 0.0)
            reset(squares, 0, 0.0)
            for i in range(0, n, LANES):
                load(value, k.x, base + i, min(LANES, n - i), ZERO)
                for j in range(LANES):
                    v = np.float64(get(value, j))
                    put_wide(squares, j, fma64(v, v, get_wide(squares, j)))
                    if centre:
                        put_wide(sums, j, get_wide(sums, j) + v)
            mean, power = 0.0, _tree(squares) / real(n)
            if centre:
                mean = _tree(sums) / real(n)
                power -= mean * mean
                power = 0.0 if power < 0.0 else power
                _st32(rows.means, row, np.float32(mean))
            narrow, inverse = np.float32(mean), np.float32(1.0 / sqrt64(power + np.float64(k.eps)))
            _st32(rows.inverses, row, inverse)
            for i in range(0, n, LANES):
                m = min(LANES, n - i)
                _per_channel(scale, k.gamma, ONE, channel, rows, i, m)
                _per_channel(shift, beta(k), ZERO, channel, rows, i, m)
                load(value, k.x, base + i, m, ZERO)
                for j in range(LANES):
                    z = (get(value, j) - narrow) * inverse
                    put(value, j, fma(z, get(scale, j), get(shift, j)))
                store(value, k.y, base + i, m)

    return body


def dx(S, centre):
    """body(thread, nthreads, k, rows); see layernorm.py."""
    load, store = loader(S.ld), storer(S.st)

    @inline
    def body(thread, nthreads, k, rows):
        first, second, hat, slope, scale = new_wide(), new_wide(), new(), new(), new()
        n = rows.c * rows.s
        for row in range(
            div(rows.total * thread, nthreads), div(rows.total * (thread + 1), nthreads)
        ):
            base, channel, inverse = (
                row * n,
                mod(row, rows.groups) * rows.c,
                _ld32(rows.inverses, row),
            )
            mean, a, b = ZERO, ZERO, ZERO
            if centre:
                mean = _ld32(rows.means, row)
            reset(first, 0, 0.0)
            reset(second, 0, 0.0)
            for turn in range(2):
                for i in range(0, n, LANES):
                    m, at = min(LANES, n - i), base + i
                    _per_channel(scale, k.gamma, ONE, channel, rows, i, m)
                    load(hat, k.x, at, m, mean)
                    load(slope, k.dy, at, m, ZERO)
                    for j in range(m, LANES):
                        put(scale, j, ZERO)
                    for j in range(LANES):
                        put(hat, j, (get(hat, j) - mean) * inverse)
                        put(slope, j, get(slope, j) * get(scale, j))
                    if turn == 0:
                        for j in range(LANES):
                            dz, product = get(slope, j), get(slope, j) * get(hat, j)
                            put_wide(first, j, get_wide(first, j) + np.float64(dz))
                            put_wide(second, j, get_wide(second, j) + np.float64(product))
                        continue
                    for j in range(LANES):
                        put(slope, j, inverse * (get(slope, j) - a - get(hat, j) * b))
                    if k.acc:
                        load(hat, k.dx, at, m, ZERO)
                        for j in range(LANES):
                            put(slope, j, get(slope, j) + get(hat, j))
                    store(slope, k.dx, at, m)
                if turn == 0:
                    a = np.float32(_tree(first) / real(n)) if centre else ZERO
                    b = np.float32(_tree(second) / real(n))

    return body


@inline
def _add_to(address, k, m, wide):
    if address != 0:
        for j in range(m):
            _st32(address, k + j, _ld32(address, k + j) + np.float32(get_wide(wide, j)))


def dparam(S, centre):
    """body(thread, nthreads, k, rows); see layernorm.py.

    With s = 1 a block of channels adds image by image; else a channel adds along its pixels.
    """
    ld, dbeta = S.ld, _dbeta if centre else _none

    @inline
    def body(thread, nthreads, k, rows):
        groups, s = rows.groups, rows.s
        products, sums, mean, inverse = new_wide(), new_wide(), new(), new()
        channels, images, columns = groups * rows.c, div(rows.total, groups), s == 1
        lo, hi = div(channels * thread, nthreads), div(channels * (thread + 1), nthreads)
        dims, steps = (1, 1, 1, 1, groups, rows.c * s), (0, 0, 0, 0, 1, 0)
        rounds = div(s + LANES - 1, LANES)
        for j in range(BLOCK):
            put(mean, j, ZERO)
        for q in range(lo, hi, BLOCK if columns else 1):
            outputs = min(BLOCK, hi - q) if columns else 1
            for j in range(0, outputs, LANES):
                reset(products, j, 0.0)
                reset(sums, j, 0.0)
            for t in range(images * rounds):
                image = div(t, rounds)
                i = (t - image * rounds) * LANES
                e = q * s + i
                m = outputs if columns else min(LANES, s - i)
                if centre:
                    _fill32(mean, rows.means, image * groups, e, m, dims, steps)
                _fill32(inverse, rows.inverses, image * groups, e, m, dims, steps)
                base = image * channels * s + e
                for j in range(m):
                    g = ld(k.dy, base + j)
                    product = g * ((ld(k.x, base + j) - get(mean, j)) * get(inverse, j))
                    put_wide(products, j, get_wide(products, j) + np.float64(product))
                    put_wide(sums, j, get_wide(sums, j) + np.float64(g))
            if not columns:
                put_wide(products, 0, _tree(products))
                put_wide(sums, 0, _tree(sums))
            _add_to(k.dgamma, q, outputs, products)
            _add_to(dbeta(k), q, outputs, sums)

    return body
