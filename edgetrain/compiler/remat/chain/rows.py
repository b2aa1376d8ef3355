"""Selects the stretches of a chain to try, and finds equal ones.

A stretch (i, j) is the stages i + 1 .. j. Equal stretches have equal tables: a chain of equal
stages has four tables for each length, because its first and last stages differ. The longer a
stretch, the coarser the grid of its ends: the loss grows with the square of the distance from the
best end, divided by the segment's length.
"""

from collections.abc import Sequence

import numpy as np

_MIX = np.uint64(0x9E3779B97F4A7C15)


def rows_of(
    parts: Sequence[np.ndarray], begins: bool, ends: bool, reach: int = 0, longest: int = 0
) -> np.ndarray:
    """Row of each stretch, int32 (n + 1, n + 1), rising with the length; -1: not tried.

    Args:
      parts: properties of stages 0 .. n; stretches are equal if all of them are equal.
      begins, ends: whether stage 1 is the chain's first, and stage n its last.
      reach: stretches shorter than 2 * reach are tried at every end; 0 tries all.
      longest: most stages of a stretch that does not end with the chain; 0: unlimited.
    """
    n = len(parts[0]) - 1
    columns = [np.unique(part, return_inverse=True)[1] for part in parts]
    # The kind of a stage covers the stage before it too, whose gradient it makes.
    kinds = np.unique(np.stack(columns, 1), axis=0, return_inverse=True)[1].reshape(-1)
    i, j = np.triu_indices(n + 1, 1)
    tried = (j == n) | (j - i <= (longest or n)) & _tried(j, j - i, reach)
    i, j = i[tried], j[tried]
    length = j - i
    flags = 2 * (begins & (i == 0)) + (ends & (j == n))
    keys = _hashes(kinds, i, j, length)
    for key in (length, kinds[i], flags):
        keys = _mixed(keys + key.astype(np.uint64))
    rows = np.full((n + 1, n + 1), -1, np.int32)
    # Numbered in order of occurrence, by rising length.
    order = np.lexsort((i, length))
    _, first_at, result = np.unique(keys[order], return_index=True, return_inverse=True)
    number = np.empty(len(first_at), np.int32)
    number[np.argsort(first_at)] = np.arange(len(first_at))
    rows[i[order], j[order]] = number[result.reshape(-1)]
    return rows


def used(row: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """For each row, how much its stages add to the cumulative sums `kept`, int64 (rows,)."""
    i, j = np.nonzero(row >= 0)
    result = np.zeros(int(row.max()) + 1, np.int64)
    result[row[i, j]] = kept[j] - kept[i]
    return result


def _tried(j: np.ndarray, length: np.ndarray, reach: int) -> np.ndarray:
    if not reach:
        return np.ones(len(j), np.bool_)
    level = np.maximum(0, np.floor(np.log2(length / reach)).astype(np.int64))
    return j % (1 << level) == 0


def _hashes(kinds: np.ndarray, i: np.ndarray, j: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Hashes of kinds[i + 1 : j + 1]: polynomials modulo 2^64 of mixed kinds."""
    mixed = _mixed(kinds.astype(np.uint64) + np.uint64(1))
    power, prefix = np.ones(len(kinds), np.uint64), np.zeros(len(kinds), np.uint64)
    for k in range(1, len(kinds)):
        power[k] = np.multiply(power[k - 1 : k], _MIX)[0]
        prefix[k] = (prefix[k - 1 : k] * _MIX + mixed[k])[0]
    return prefix[j] - prefix[i] * power[length]


def _mixed(words: np.ndarray) -> np.ndarray:
    words = words * _MIX
    return (words ^ (words >> np.uint64(29))) * _MIX
