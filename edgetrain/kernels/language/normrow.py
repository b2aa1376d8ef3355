"""The bodies of norm/layer.py: one scheme of rows and channels for all three normalisations.

x is [rows, c, s] with `groups` rows to an image; `centre` False (RMS) has neither means nor shift.
An address 0 stands for an absent operand.
"""

from typing import NamedTuple

import numpy as np

from .block import BLOCK, new, new_wide
from .elementwise_access import get, get_wide, loads_apart, put, put_wide, stores_apart
from .inlining import inline
from .lanes import LANES, fold, loader, reset
from .mathf import ONE, ZERO, sqrt
from .number import fma
from .prim import FP32, div, mod, to_real
from .strided import filler

_ld32, _st32, _apart32, _fill32 = FP32.ld, FP32.st, loads_apart(FP32), filler(FP32.ld)
_load32, _tree = loader(FP32.ld), fold("add")
_TOGETHER = 4  # rows that add to the channels in one turn


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


@inline
def _at(address, channel, absent):
    return _ld32(address, channel) if address != 0 else absent


def _moments(S, centre):
    """rowsums.moments, without vectors as values."""
    ld = loads_apart(S)

    @inline
    def add(k, offset, m, sums, squares):
        for j in range(m):
            v = np.float64(ld(k.x, offset + j))
            put_wide(squares, j, fma(v, v, get_wide(squares, j)))
            if centre:
                put_wide(sums, j, get_wide(sums, j) + v)

    @inline
    def of_row(k, offset, n):
        sums, squares, whole = new_wide(), new_wide(), div(n, LANES) * LANES
        reset(sums, 0, 0.0)
        reset(squares, 0, 0.0)
        for i in range(0, whole, LANES):
            add(k, offset + i, LANES, sums, squares)
        add(k, offset + whole, n - whole, sums, squares)
        return _tree(sums) if centre else 0.0, _tree(squares)

    return of_row


def forward(S, centre, moments=_moments):
    """body(thread, nthreads, k, rows); see norm/layer.py.

    Args:
      moments: how a row's sums are made: `_moments` or that of rowsums.py.
    """
    ld, st, beta = loads_apart(S), stores_apart(S), _beta if centre else _none
    of_row = moments(S, centre)

    @inline
    def statistics(k, rows, row, n):
        """(mean, 1 / deviation), float32, which are stored."""
        total, squares = of_row(k, row * n, n)
        mean, power = 0.0, squares / to_real(n)
        if centre:
            mean = total / to_real(n)
            power -= mean * mean
            power = 0.0 if power < 0.0 else power
            _st32(rows.means, row, np.float32(mean))
        inverse = np.float32(1.0 / sqrt(power + np.float64(k.eps)))
        _st32(rows.inverses, row, inverse)
        return np.float32(mean), inverse

    @inline
    def store(k, base, n, run, channel, mean, inverse):
        if run == 1 and k.gamma != 0 and beta(k) != 0:
            for j in range(n):
                z = (ld(k.x, base + j) - mean) * inverse
                scale, shift = _apart32(k.gamma, channel + j), _apart32(beta(k), channel + j)
                st(k.y, base + j, fma(z, scale, shift))
        elif run == 1 and k.gamma != 0:
            for j in range(n):
                z = (ld(k.x, base + j) - mean) * inverse
                st(k.y, base + j, fma(z, _apart32(k.gamma, channel + j), ZERO))
        else:
            for i in range(0, n, run):
                scale, shift = _at(k.gamma, channel, ONE), _at(beta(k), channel, ZERO)
                channel += 1
                for j in range(base + i, base + i + run):
                    st(k.y, j, fma((ld(k.x, j) - mean) * inverse, scale, shift))

    @inline
    def body(thread, nthreads, k, rows):
        n = rows.c * rows.s
        run = rows.s if k.gamma != 0 or beta(k) != 0 else n  # elements of one scale and shift
        lo, hi = div(rows.total * thread, nthreads), div(rows.total * (thread + 1), nthreads)
        mean = inverse = ZERO
        for row in range(lo, hi + 1):  # a row's sums are under way while the one before is stored
            last_mean, last_inverse = mean, inverse
            if row < hi:
                mean, inverse = statistics(k, rows, row, n)
            if row > lo:
                channel = mod(row - 1, rows.groups) * rows.c
                store(k, (row - 1) * n, n, run, channel, last_mean, last_inverse)

    return body


def _slopes(S):
    """As rowsums.slopes, without vectors as values, of all shapes."""
    ld = loads_apart(S)

    @inline
    def add(k, offset, j, scale, mean, inverse, first, second):
        dz = ld(k.dy, offset + j) * scale
        product = dz * ((ld(k.x, offset + j) - mean) * inverse)
        put_wide(first, j, get_wide(first, j) + np.float64(dz))
        put_wide(second, j, get_wide(second, j) + np.float64(product))

    @inline
    def of_row(k, rows, offset, channel, mean, inverse):
        first, second, scale, n = new_wide(), new_wide(), new(), rows.c * rows.s
        whole = div(n, LANES) * LANES if rows.s == 1 and k.gamma != 0 else 0
        reset(first, 0, 0.0)
        reset(second, 0, 0.0)
        for i in range(0, whole, LANES):
            for j in range(LANES):
                s = _apart32(k.gamma, channel + i + j)
                add(k, offset + i, j, s, mean, inverse, first, second)
        for i in range(whole, n, LANES):
            m = min(LANES, n - i)
            _per_channel(scale, k.gamma, ONE, channel, rows, i, m)
            for j in range(m):
                add(k, offset + i, j, get(scale, j), mean, inverse, first, second)
        return _tree(first), _tree(second)

    return of_row


def dx(S, centre, slopes=_slopes):
    """body(thread, nthreads, k, rows); see norm/layer.py.

    Args:
      slopes: how a row's sums are made: `_slopes` or that of rowsums.py.
    """
    ld, st, of_row = loads_apart(S), stores_apart(S), slopes(S)

    @inline
    def means(k, rows, row):
        """(mean, 1 / deviation, the means of dz and of dz * xhat) of a row, float32."""
        n, channel = rows.c * rows.s, mod(row, rows.groups) * rows.c
        mean, inverse = ZERO, _ld32(rows.inverses, row)
        if centre:
            mean = _ld32(rows.means, row)
        first, second = of_row(k, rows, row * n, channel, mean, inverse)
        level = np.float32(first / to_real(n)) if centre else ZERO
        return mean, inverse, level, np.float32(second / to_real(n))

    @inline
    def slope(k, j, scale, mean, inverse, a, b):
        hat = (ld(k.x, j) - mean) * inverse
        return inverse * (ld(k.dy, j) * scale - a - hat * b)

    @inline
    def store(k, base, n, run, channel, of):
        mean, inverse, a, b = of
        direct = run == 1 and k.gamma != 0
        for i in range(0, n, n if direct else run):
            if direct and k.acc:
                for j in range(n):
                    s = _apart32(k.gamma, channel + j)
                    v = slope(k, base + j, s, mean, inverse, a, b)
                    st(k.dx, base + j, v + ld(k.dx, base + j))
            elif direct:
                for j in range(n):
                    s = _apart32(k.gamma, channel + j)
                    st(k.dx, base + j, slope(k, base + j, s, mean, inverse, a, b))
            else:
                s = _at(k.gamma, channel, ONE)
                channel += 1
                for j in range(base + i, base + i + run):
                    v = slope(k, j, s, mean, inverse, a, b)
                    st(k.dx, j, v + ld(k.dx, j) if k.acc else v)

    @inline
    def body(thread, nthreads, k, rows):
        n = rows.c * rows.s
        run = rows.s if k.gamma != 0 else n  # elements of one scale
        lo, hi = div(rows.total * thread, nthreads), div(rows.total * (thread + 1), nthreads)
        for row in range(lo, hi):
            of = means(k, rows, row)
            store(k, row * n, n, run, mod(row, rows.groups) * rows.c, of)

    return body


@inline
def _add_to(address, k, m, wide):
    if address != 0:
        for j in range(m):
            _st32(address, k + j, _ld32(address, k + j) + np.float32(get_wide(wide, j)))


def _adders(S):
    """add, add_four: m neighbours of a row, or of four rows, add to their channels or lanes."""
    ld = loads_apart(S)

    @inline
    def both(k, offset, mean, inverse):
        g = ld(k.dy, offset)
        return np.float64(g * ((ld(k.x, offset) - mean) * inverse)), np.float64(g)

    @inline
    def add(k, offset, m, mean, inverse, products, sums):
        for j in range(m):
            product, g = both(k, offset + j, mean, inverse)
            put_wide(products, j, get_wide(products, j) + product)
            put_wide(sums, j, get_wide(sums, j) + g)

    @inline
    def add_four(k, offset, step, m, of, products, sums):
        """As `add` of four rows, one after the other."""
        (m0, i0), (m1, i1), (m2, i2), (m3, i3) = of
        for j in range(m):
            p, s = get_wide(products, j), get_wide(sums, j)
            product, g = both(k, offset + j, m0, i0)
            p, s = p + product, s + g
            product, g = both(k, offset + step + j, m1, i1)
            p, s = p + product, s + g
            product, g = both(k, offset + 2 * step + j, m2, i2)
            p, s = p + product, s + g
            product, g = both(k, offset + 3 * step + j, m3, i3)
            put_wide(products, j, p + product)
            put_wide(sums, j, s + g)

    return add, add_four


def dparam(S, centre):
    """body(thread, nthreads, k, rows); see norm/layer.py.

    With s = 1 a block of channels adds image by image; else a channel adds along its pixels.
    """
    (add, add_four), dbeta = _adders(S), _dbeta if centre else _none

    @inline
    def of_row(k, rows, row):
        mean = ZERO
        if centre:
            mean = _ld32(rows.means, row)
        return mean, _ld32(rows.inverses, row)

    @inline
    def add_rows(k, rows, q, m, images, products, sums):
        """Channels q ... q + m - 1 of one group, of all images, where s is 1."""
        groups, group, step = rows.groups, div(q, rows.c), rows.groups * rows.c
        together = div(images, _TOGETHER) * _TOGETHER
        for image in range(0, together, _TOGETHER):
            offset = image * groups + group
            of = (
                of_row(k, rows, offset),
                of_row(k, rows, offset + groups),
                of_row(k, rows, offset + 2 * groups),
                of_row(k, rows, offset + 3 * groups),
            )
            add_four(k, image * step + q, step, m, of, products, sums)
        for image in range(together, images):
            mean, inverse = of_row(k, rows, image * groups + group)
            add(k, image * step + q, m, mean, inverse, products, sums)

    @inline
    def add_pixels(k, rows, q, images, products, sums):
        """Channel q, of all images."""
        channels, s = rows.groups * rows.c, rows.s
        whole = div(s, LANES) * LANES
        for image in range(images):
            mean, inverse = of_row(k, rows, image * rows.groups + div(q, rows.c))
            offset = (image * channels + q) * s
            for i in range(0, whole, LANES):
                add(k, offset + i, LANES, mean, inverse, products, sums)
            add(k, offset + whole, s - whole, mean, inverse, products, sums)
        put_wide(products, 0, _tree(products))
        put_wide(sums, 0, _tree(sums))

    @inline
    def body(thread, nthreads, k, rows):
        products, sums, columns = new_wide(), new_wide(), rows.s == 1
        channels, images = rows.groups * rows.c, div(rows.total, rows.groups)
        q, hi = div(channels * thread, nthreads), div(channels * (thread + 1), nthreads)
        while q < hi:
            m = min(min(BLOCK, hi - q), rows.c - mod(q, rows.c)) if columns else 1
            for j in range(0, m, LANES):
                reset(products, j, 0.0)
                reset(sums, j, 0.0)
            if columns:
                add_rows(k, rows, q, m, images, products, sums)
            else:
                add_pixels(k, rows, q, images, products, sums)
            _add_to(k.dgamma, q, m, products)
            _add_to(dbeta(k), q, m, sums)
            q += m

    return body
