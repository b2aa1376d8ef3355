"""A shuffled order of any length in O(1) memory: position in the epoch -> sample.

A Feistel network permutes range(rows * columns), a rectangle about sqrt(n) wide with at least n
elements. The few values outside range(n) are encrypted again until they are inside (cycle walking).

Source: Black and Rogaway 2002, Ciphers with Arbitrary Finite Domains, sections 3 and 4.
"""

import math

import numpy as np

from .hashing import key_of, random_bits

_ROUNDS = 6
_PURPOSE = 0x7065726D  # makes these bits independent of augmentation


def permuted(seed: int, epoch: int, positions: np.ndarray, n: int) -> np.ndarray:
    """The samples at `positions` in the order of range(n) chosen by (seed, epoch).

    Args:
      positions: integers in [0, n), any shape.
      n: samples, at most 2**62.
    Returns:
      int64 indices, shape of `positions`; over all positions each index occurs once.
    """
    positions = np.asarray(positions)
    assert 0 < n <= 2**62 and (positions.size == 0 or 0 <= positions.min() <= positions.max() < n)
    columns = math.isqrt(n - 1) + 1
    rows = -(-n // columns)
    keys = [key_of(seed, epoch, _PURPOSE, number) for number in range(_ROUNDS)]
    values = _encrypt(positions.astype(np.uint64).ravel(), keys, rows, columns)
    while (outside := np.flatnonzero(values >= np.uint64(n))).size:
        values[outside] = _encrypt(values[outside], keys, rows, columns)
    return values.astype(np.int64).reshape(positions.shape)


def _encrypt(values: np.ndarray, keys: list[np.uint64], rows: int, columns: int) -> np.ndarray:
    """A bijection of range(rows * columns): each coordinate shifts the other in turn."""
    row, column = np.divmod(values, np.uint64(columns))
    for even, odd in zip(keys[::2], keys[1::2], strict=True):
        row = (row + random_bits(even, column) % np.uint64(rows)) % np.uint64(rows)
        column = (column + random_bits(odd, row) % np.uint64(columns)) % np.uint64(columns)
    return row * np.uint64(columns) + column
