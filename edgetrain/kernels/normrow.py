"""The bodies of layernorm.py: one scheme of rows and channels for all three normalisations.

x is [rows, c, s] with `groups` rows to an image; `centre` False (RMS) has neither means nor shift.
An address 0 stands for an absent operand.
"""

import numpy as np

from .block import (
    BLOCK,
    add_wide,
    fold,
    get,
    get_wide,
    new,
    new_wide,
    put,
    put_wide,
    set_all,
)
from .jit import inline
from .mathf import ONE, ZERO, sqrt64
from .prim import FP32, div, fma, mod
from .strided import filler

_ld32, _st32, _fill32 = FP32.ld, FP32.st, filler(FP32.ld)
_tree = fold(add_wide)


@inline
def _per_channel(out, address, absent, row, groups, c, s, i, m):
    """out[j] = the channel's value for elements i ... i + m - 1 of a row; `absent` without one."""
    if address == 0:
        for j in range(m):
            put(out, j, absent)
    else:
        one = s == 1
        dims = (1, 1, 1, 1, 1 if one else c, c if one else s)
        steps = (0, 0, 0, 0, 0 if one else 1, 1 if one else 0)
        _fill32(out, address, mod(row, groups) * c, i, m, dims, steps)


def forward(S, centre):
    """body(thread, nthreads, x, gamma, beta, y, means, inverses, rows, groups, c, s, eps)."""
    ld, st = S.ld, S.st

    @inline
    def body(
        thread, nthreads, x, gamma, beta, y, means, inverses, rows, groups, c, s, eps
    ):  # fmt: skip
        wide, out, scale, shift = new_wide(), new(), new(), new()
        n = c * s
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            base, mean, power = row * n, 0.0, 0.0
            for moment in range(0 if centre else 1, 2):
                set_all(wide, n, 0.0)
                for i in range(0, n, BLOCK):
                    for j in range(min(BLOCK, n - i)):
                        v = np.float64(ld(x, base + i + j)) - mean
                        put_wide(wide, j, get_wide(wide, j) + (v * v if moment else v))
                _tree(wide, n)
                power = get_wide(wide, 0) / np.float64(n)
                mean = mean if moment else power
            narrow, inverse = np.float32(mean), np.float32(1.0 / sqrt64(power + np.float64(eps)))
            if centre:
                _st32(means, row, narrow)
            _st32(inverses, row, inverse)
            for i in range(0, n, BLOCK):
                m = min(BLOCK, n - i)
                _per_channel(scale, gamma, ONE, row, groups, c, s, i, m)
                _per_channel(shift, beta, ZERO, row, groups, c, s, i, m)
                for j in range(m):
                    z = (ld(x, base + i + j) - narrow) * inverse
                    put(out, j, fma(z, get(scale, j), get(shift, j)))
                for j in range(m):
                    st(y, base + i + j, get(out, j))

    return body


def dx(S, centre):
    """body(thread, nthreads, x, gamma, means, inverses, dy, dx, rows, groups, c, s, acc)."""
    ld, st = S.ld, S.st

    @inline
    def body(
        thread, nthreads, x, gamma, means, inverses, dy, dx, rows, groups, c, s, acc
    ):  # fmt: skip
        first, second, out, scale = new_wide(), new_wide(), new(), new()
        n = c * s
        for row in range(div(rows * thread, nthreads), div(rows * (thread + 1), nthreads)):
            base, mean, inverse = row * n, ZERO, _ld32(inverses, row)
            if centre:
                mean = _ld32(means, row)
            set_all(first, n, 0.0)
            set_all(second, n, 0.0)
            for i in range(0, n, BLOCK):
                m = min(BLOCK, n - i)
                _per_channel(scale, gamma, ONE, row, groups, c, s, i, m)
                for j in range(m):
                    at = base + i + j
                    dz = ld(dy, at) * get(scale, j)
                    product = dz * ((ld(x, at) - mean) * inverse)
                    put_wide(first, j, get_wide(first, j) + np.float64(dz))
                    put_wide(second, j, get_wide(second, j) + np.float64(product))
            _tree(first, n)
            _tree(second, n)
            a = np.float32(get_wide(first, 0) / np.float64(n)) if centre else ZERO
            b = np.float32(get_wide(second, 0) / np.float64(n))
            for i in range(0, n, BLOCK):
                m = min(BLOCK, n - i)
                _per_channel(scale, gamma, ONE, row, groups, c, s, i, m)
                for j in range(m):
                    at = base + i + j
                    z = (ld(x, at) - mean) * inverse
                    put(out, j, inverse * (fma(ld(dy, at), get(scale, j), -a) - z * b))
                if acc:
                    for j in range(m):
                        put(out, j, get(out, j) + ld(dx, base + i + j))
                for j in range(m):
                    st(dx, base + i + j, get(out, j))

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
        rounds = div(s + BLOCK - 1, BLOCK)
        for j in range(BLOCK):
            put(mean, j, ZERO)
        for k in range(lo, hi, BLOCK if columns else 1):
            outputs = min(BLOCK, hi - k) if columns else 1
            used = outputs if columns else s
            set_all(products, used, 0.0)
            set_all(sums, used, 0.0)
            for t in range(images * rounds):
                image = div(t, rounds)
                i = (t - image * rounds) * BLOCK
                e = k * s + i
                m = outputs if columns else min(BLOCK, s - i)
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
                _tree(products, used)
                _tree(sums, used)
            _add_to(dgamma, k, outputs, products)
            _add_to(dbeta, k, outputs, sums)

    return body
