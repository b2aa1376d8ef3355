"""The bodies of layernorm.py: one scheme of rows and channels for all three normalisations.

x is [rows, c, s] with `groups` rows to an image; `centre` False (RMS) has neither means nor shift.
An address 0 stands for an absent operand.
"""

import numpy as np

from ..jit import inline
from .block import BLOCK, get, get_wide, new, new_wide, put, put_wide
from .lanes import LANES, fold, loader, real, reset, storer
from .mathf import ONE, ZERO, sqrt64
from .prim import FP32, div, fma, fma64, mod
from .strided import filler

_ld32, _st32, _fill32 = FP32.ld, FP32.st, filler(FP32.ld)
_load32, _tree = loader(FP32.ld), fold("add")


@inline
def _per_channel(out, address, absent, channel, c, s, i, m):
    """out[j] = the channel's value for elements i ... i + m - 1 of a row; `absent` without one.

    `channel`: the first of the row's c channels.
    """
    if address == 0:
        for j in range(LANES):
            put(out, j, absent)
    elif s == 1:
        _load32(out, address, channel + i, m, absent)
    else:
        _fill32(out, address, channel, i, m, (1, 1, 1, 1, c, s), (0, 0, 0, 0, 1, 0))


def forward(S, centre):
    """body(thread, nthreads, x, gamma, beta, y, means, inverses, rows, groups, c, s, eps)."""
    load, store = loader(S.ld), storer(S.st)

    @inline
    def body(
        thread, nthreads, x, gamma, beta, y, means, inverses, rows, groups, c, s, eps
    ):  # fmt: skip
        sums, squares, value, scale, shift = new_wide(), new_wide(), new(), new(), new()
        n = c * s
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            base, channel = row * n, mod(row, groups) * c
            reset(sums, 0, 0.0)
            reset(squares, 0, 0.0)
            for i in range(0, n, LANES):
                load(value, x, base + i, min(LANES, n - i), ZERO)
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
                _st32(means, row, np.float32(mean))
            narrow, inverse = np.float32(mean), np.float32(1.0 / sqrt64(power + np.float64(eps)))
            _st32(inverses, row, inverse)
            for i in range(0, n, LANES):
                m = min(LANES, n - i)
                _per_channel(scale, gamma, ONE, channel, c, s, i, m)
                _per_channel(shift, beta, ZERO, channel, c, s, i, m)
                load(value, x, base + i, m, ZERO)
                for j in range(LANES):
                    z = (get(value, j) - narrow) * inverse
                    put(value, j, fma(z, get(scale, j), get(shift, j)))
                store(value, y, base + i, m)

    return body


def dx(S, centre):
    """body(thread, nthreads, x, gamma, means, inverses, dy, dx, rows, groups, c, s, acc)."""
    load, store = loader(S.ld), storer(S.st)

    @inline
    def body(
        thread, nthreads, x, gamma, means, inverses, dy, dx, rows, groups, c, s, acc
    ):  # fmt: skip
        first, second, hat, slope, scale = new_wide(), new_wide(), new(), new(), new()
        n = c * s
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            base, channel, inverse = row * n, mod(row, groups) * c, _ld32(inverses, row)
            mean, a, b = ZERO, ZERO, ZERO
            if centre:
                mean = _ld32(means, row)
            reset(first, 0, 0.0)
            reset(second, 0, 0.0)
            for turn in range(2):
                for i in range(0, n, LANES):
                    m, at = min(LANES, n - i), base + i
                    _per_channel(scale, gamma, ONE, channel, c, s, i, m)
                    load(hat, x, at, m, mean)
                    load(slope, dy, at, m, ZERO)
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
                    if acc:
                        load(hat, dx, at, m, ZERO)
                        for j in range(LANES):
                            put(slope, j, get(slope, j) + get(hat, j))
                    store(slope, dx, at, m)
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
    """body(thread, nthreads, x, means, inverses, dy, dgamma, dbeta, rows, groups, c, s).

    With s = 1 a block of channels adds image by image; else a channel adds along its pixels.
    """
    ld = S.ld

    @inline
    def body(
        thread, nthreads, x, means, inverses, dy, dgamma, dbeta, rows, groups, c, s
    ):  # fmt: skip
        products, sums, mean, inverse = new_wide(), new_wide(), new(), new()
        channels, images, columns = groups * c, div(rows, groups), s == 1
        lo, hi = div(channels * thread, nthreads), div(channels * (thread + 1), nthreads)
        dims, steps = (1, 1, 1, 1, groups, c * s), (0, 0, 0, 0, 1, 0)
        rounds = div(s + LANES - 1, LANES)
        for j in range(BLOCK):
            put(mean, j, ZERO)
        for k in range(lo, hi, BLOCK if columns else 1):
            outputs = min(BLOCK, hi - k) if columns else 1
            for q in range(0, outputs, LANES):
                reset(products, q, 0.0)
                reset(sums, q, 0.0)
            for t in range(images * rounds):
                image = div(t, rounds)
                i = (t - image * rounds) * LANES
                e = k * s + i
                m = outputs if columns else min(LANES, s - i)
                if centre:
                    _fill32(mean, means, image * groups, e, m, dims, steps)
                _fill32(inverse, inverses, image * groups, e, m, dims, steps)
                base = image * channels * s + e
                for j in range(m):
                    g = ld(dy, base + j)
                    product = g * ((ld(x, base + j) - get(mean, j)) * get(inverse, j))
                    put_wide(products, j, get_wide(products, j) + np.float64(product))
                    put_wide(sums, j, get_wide(sums, j) + np.float64(g))
            if not columns:
                put_wide(products, 0, _tree(products))
                put_wide(sums, 0, _tree(sums))
            _add_to(dgamma, k, outputs, products)
            _add_to(dbeta, k, outputs, sums)

    return body
