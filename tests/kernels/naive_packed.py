"""Naive codec of blocks: 64 int8 numbers and a power of two, one number at a time."""

import math

import numpy as np

from .naive_rng import hash32


def block(values, randoms, roots=False) -> tuple[list[int], int]:
    """Encode up to 64 float32 values as 64 integers and an exponent.

    Args:
      randoms: 32 random bits for each value; 2**31 for all rounds to nearest.
      roots: positive values never round to zero.
    """
    values = [float(v) for v in values]
    if not all(map(math.isfinite, values)):
        return [1] * 64, 255
    largest = max(map(abs, values))
    if largest == 0:
        return [0] * 64, 0
    exponent = 1
    while largest > 127 * 2.0 ** (exponent - 127):
        exponent += 1
    out = []
    for value, random in zip(values, randoms, strict=True):
        fine = math.trunc(value / 2.0 ** (exponent - 127) * 2**23)
        byte = (fine + (int(random) >> 9)) >> 23
        out.append(1 if roots and value > 0 and byte == 0 else byte)
    return out + [0] * (64 - len(out)), exponent


def packed(values, key=None, roots=False) -> np.ndarray:
    """Encode a row of values in blocks numbered from 0; without `key`, round to nearest."""
    rows = []
    for first in range(0, len(values), 64):
        part = values[first : first + 64]
        numbers = range(first, first + len(part))
        randoms = [2**31 if key is None else hash32(key, i) for i in numbers]
        whole, exponent = block(part, randoms, roots)
        rows.append(np.array([*(b & 255 for b in whole), exponent], np.uint8))
    return np.concatenate(rows).view("V65")
