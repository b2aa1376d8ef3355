"""Loops for test_loops.py, covering every Python construct that loops may use."""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.functions import Unit, loop
from edgetrain.kernels.loops.kinds import Flags, Floats, Floats32, IntRows, Ints, Ints32, Words

LOOPED = Unit("parts of Python", __package__, ("looped",))
MOST = 2**40


class Pair(NamedTuple):
    """Two numbers."""

    whole: int
    part: float


class Table(NamedTuple):
    """Arrays of every kind."""

    ints: Ints
    short: Ints32
    words: Words
    floats: Floats
    single: Floats32
    flags: Flags
    rows: IntRows
    scale: float
    count: int


@loop
def _swapped(a, b):
    return b, a


@loop
def _early(values, wanted):
    for at, value in enumerate(values):
        if value == wanted:
            return at
    return -1


@LOOPED.entry
def arithmetic(a: int, b: int, x: float) -> Pair:
    """Quotients and remainders of either sign, powers, casts, booleans as numbers."""
    whole = (a // b) * 1000 + a % b - a // 8 + (a % 16) * 7 + (-a if a > b else +1 * b)
    whole += a >= 0
    whole -= not (a < b < MOST)
    part = a / b + x**2.5 + 0.5 ** (1.0 + x) + np.log(x) + np.exp(-x) + np.float64(a) * int(x)
    return Pair(whole ^ (b << 3) | (a >> 2) & 5, max(part, x, a) + min(a, b))


@LOOPED.entry
def control(t: Table, n: int) -> Pair:
    """Nested and consecutive loops, up and down, with breaks; variables that change type."""
    total, found = 0, 0.0
    for k in range(n, 0, -2):
        if k % 3 == 0:
            continue
        total = total * 3 + k
        if total > 10_000 or (k < 3 and total > 100):
            break
    way = 1 if n % 2 else -1
    for k in range(0, way * n, way):
        total += k
    while n > 0 and t.ints[n % t.ints.size] != 3:
        n -= 1
        found += t.floats[n % t.floats.size] if n % 2 else n
    for value in t.ints[1:-1]:
        total ^= value
    low, high = _swapped(total, n)
    return Pair(low * 7 + high + _early(t.ints, 3), found)


@LOOPED.entry
def memory(t: Table, start: int) -> Pair:
    """Elements of every type, rows, and slices clipped at the ends."""
    row = t.rows[1]
    t.short[0], t.flags[0] = row[0] + t.rows[0, 1], row.size > 1
    t.flags[1] = not t.flags[0]
    single = np.float32(0)
    for k in range(t.single.size):
        single += t.single[k]
    t.single[0] = single
    x = t.words[0]
    x ^= x << np.uint64(13)
    x = x * np.uint64(0x9E3779B97F4A7C15) + np.uint64(t.flags[0])
    t.words[0] = x ^ (x >> np.uint64(7))
    whole = 0
    for part in range(2):
        tail = t.rows[part, start:]
        whole = whole * 10 + tail.size
        for value in tail:
            whole += value
    head = t.ints[:start]
    head = head if head.size < t.ints.size else t.ints[1 : 1 + start]
    for k in range(head.size):
        head[k] += t.short[0]
    t.rows[0, 0] += t.rows.shape[1] + t.rows.size
    return Pair(whole + t.count + int(t.words[0] % np.uint64(1000)), t.scale * single)
