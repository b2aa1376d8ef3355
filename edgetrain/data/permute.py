"""A shuffled order of any length in O(1) memory: where in the epoch -> which sample.

A Feistel network permutes the next power of four; values outside range(n) are put through it
again until they fall inside (cycle walking: fewer than four passes on average).

Source: Black and Rogaway 2002, Ciphers with Arbitrary Finite Domains, sections 3 and 4.
"""

import numpy as np

from .hashing import key_of, random_bits

_ROUNDS = 6
_PURPOSE = 0x7065726D  # keeps these bits apart from those of augmentation


def permuted(seed: int, epoch: int, positions: np.ndarray, n: int) -> np.ndarray:
    """The samples at `positions` of the order that (seed, epoch) gives range(n).

    Args:
      positions: integers in [0, n), any shape.
      n: samples, at most 2**62.
    Returns:
      int64 indices, shape of `positions`; over all positions each index occurs once.
    """
    positions = np.asarray(positions)
    assert 0 < n <= 2**62 and (positions.size == 0 or 0 <= positions.min() <= positions.max() < n)
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    keys = [key_of(seed, epoch, _PURPOSE, number) for number in range(_ROUNDS)]
    values = _encrypt(positions.astype(np.uint64).ravel(), keys, half)
    limit = np.uint64(n)
    while (outside := np.flatnonzero(values >= limit)).size:
        values[outside] = _encrypt(values[outside], keys, half)
    return values.astype(np.int64).reshape(positions.shape)


def _encrypt(values: np.ndarray, keys: list[np.uint64], half: int) -> np.ndarray:
    """A bijection of range(4**half); each round swaps the halves and mixes one of them."""
    shift, mask = np.uint64(half), np.uint64(2**half - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (random_bits(key, right) & mask)
    return (left << shift) | right
