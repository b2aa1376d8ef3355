"""Lifetimes of buffers, and pairs that share time, for greedy and exact placement."""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.kinds import Ints


class Lives(NamedTuple):
    """Lifetimes [start, stop) of buffers, none empty.

    Compressed rows: buffer i shares time with `near[near_at[i] : near_at[i + 1]]`, sorted. If
    nearly all pairs share time, they are not listed and `near_at` is empty.
    """

    start: Ints
    stop: Ints
    near_at: Ints
    near: Ints


def lives(start: np.ndarray, stop: np.ndarray, listed: bool = False) -> Lives:
    """Make Lives; O(n log n) in buffers and pairs that share time.

    Args:
      listed: list the pairs even if there are many.
    """
    count = len(start)
    by_start = np.argsort(start, kind="stable")
    # In this order a buffer meets its successors up to the first one that starts too late.
    behind = np.searchsorted(start[by_start], stop[by_start]) - np.arange(1, count + 1)
    pairs = 2 * int(behind.sum())
    if pairs**2 < count**3:
        return Lives(start, stop, *_sorted_pairs(by_start, behind))
    return Lives(start, stop, *(_every_pair(start, stop) if listed else _NONE))


_NONE = np.zeros(0, np.int64), np.zeros(0, np.int64)


def _sorted_pairs(by_start: np.ndarray, behind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows if few pairs share time, from pairs in both directions."""
    count = len(by_start)
    first = np.repeat(np.arange(count), behind)
    before = np.cumsum(behind) - behind
    second = first + 1 + np.arange(len(first)) - np.repeat(before, behind)
    rows = by_start[np.concatenate([first, second])]
    others = by_start[np.concatenate([second, first])]
    near_at = np.zeros(count + 1, np.int64)
    near_at[1:] = np.cumsum(np.bincount(rows, minlength=count))
    order = np.argsort(rows * max(count, 1) + others)
    return near_at, others[order].astype(np.int64)


def _every_pair(start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows if many pairs share time: compares all pairs."""
    meets = (start[:, None] < stop[None, :]) & (start[None, :] < stop[:, None])
    np.fill_diagonal(meets, False)
    near_at = np.zeros(len(start) + 1, np.int64)
    near_at[1:] = np.cumsum(meets.sum(axis=1))
    return near_at, np.ascontiguousarray(np.nonzero(meets)[1])


def renumbered(lives: Lives, order: np.ndarray) -> Lives:
    """The same buffers renumbered by `order`; their pairs must be listed."""
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    counts = np.diff(lives.near_at)[order]
    near_at = np.zeros(len(order) + 1, np.int64)
    near_at[1:] = np.cumsum(counts)
    taken = np.repeat(lives.near_at[order] - near_at[:-1], counts) + np.arange(near_at[-1])
    return Lives(lives.start[order], lives.stop[order], near_at, number[lives.near[taken]])
