"""A shuffled order of any length in O(1) memory: position in the epoch -> sample.

A Feistel network permutes the numbers below rows * columns, the smallest rectangle of about sqrt(n)
columns with at least n cells. Numbers outside range(n) go through it again (cycle walking). The
order is the same as in data/order/permute.py, but without 64-bit division.

Source: Black and Rogaway 2002, Ciphers with Arbitrary Finite Domains, sections 3 and 4; Steele,
Lea, Flood 2014 (the mixer).
"""

import numpy as np

from ..language.inlining import inline
from ..language.prim import div, mod, st_i64, urem32
from ..registry import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32, _16, _1 = (np.uint64(v) for v in (30, 27, 31, 32, 16, 1))
_LOW16, _LOW32, _TOP = np.uint64(0xFFFF), np.uint64(0xFFFFFFFF), np.uint64(1 << 63)
_PURPOSE, _ZERO = np.uint64(0x7065726D), np.uint64(0)
ROUNDS = 6
LENGTHS = np.uint64(0x6C656E67746873)  # added to the seed for the order of lengths, not samples


@inline
def mix(v):
    """64 well-mixed bits of a u64; a bijection."""
    v = (v ^ (v >> _30)) * _MIX1
    v = (v ^ (v >> _27)) * _MIX2
    return v ^ (v >> _31)


@inline
def _rem(v, m):
    """v % m: three 32-bit divisions for m up to 2^16, else bit by bit."""
    if m <= _LOW16:
        r = urem32(v >> _32, m)
        r = urem32((r << _16) | ((v >> _16) & _LOW16), m)
        return urem32((r << _16) | (v & _LOW16), m)
    r = _ZERO
    for _ in range(64):
        r = (r << _1) | (v >> np.uint64(63))
        v = v << _1
        if r >= m:
            r -= m
    return r


@inline
def columns_of(n):
    """isqrt(n - 1) + 1: the number of columns of the rectangle."""
    rest, root, bit = n - 1, 0, 1 << 62
    while bit > rest:
        bit >>= 2
    while bit != 0:
        if rest >= root + bit:
            rest -= root + bit
            root = (root >> 1) + bit
        else:
            root >>= 1
        bit >>= 2
    return root + 1


@inline
def sample_at(seed, epoch, position, n, columns):
    """The sample at `position` in the order of range(n) for (seed, epoch)."""
    rows = np.uint64(div(n + columns - 1, columns))
    wide = np.uint64(columns)
    base = mix(np.uint64(seed) + GOLDEN)
    base = mix(base + np.uint64(epoch) + GOLDEN)
    base = mix(base + _PURPOSE + GOLDEN)
    row, column = np.uint64(div(position, columns)), np.uint64(mod(position, columns))
    result = n
    while result >= n:
        for k in range(0, ROUNDS, 2):
            even = mix(base + np.uint64(k) + GOLDEN)
            odd = mix(base + np.uint64(k + 1) + GOLDEN)
            row = _rem(row + _rem(mix(column * GOLDEN + even), rows), rows)
            column = _rem(column + _rem(mix(row * GOLDEN + odd), wide), wide)
        result = np.int64(row) * columns + np.int64(column)
    return result


@kernel(
    "drive_order",
    "out:w:i64[count] seed=compared epoch=compared start=size count n",
    check="min(count, n) >= 1",
)
def drive_order():
    """out [count]: the samples at positions start, start + 1, ... of an epoch's order."""

    def run(thread, nthreads, args):
        columns = columns_of(args.n)
        for i in range(
            div(args.count * thread, nthreads), div(args.count * (thread + 1), nthreads)
        ):
            st_i64(args.out, i, sample_at(args.seed, args.epoch, args.start + i, args.n, columns))

    return run
