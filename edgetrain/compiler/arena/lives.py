"""When buffers live, and which share time: what placement in order and exact search walk along."""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loop_kinds import Ints


class Lives(NamedTuple):
    """Of buffers live on [start, stop), none empty.

    Compressed rows: buffer i shares time with `near[near_at[i] : near_at[i + 1]]`, rising.
    """

    start: Ints
    stop: Ints
    near_at: Ints
    near: Ints


def lives(start: np.ndarray, stop: np.ndarray) -> Lives:
    """O(n log n) in buffers and in pairs that meet."""
    count = len(start)
    by_start = np.argsort(start, kind="stable")
    # In this order a buffer meets those right behind it, up to the first that starts too late.
    behind = np.searchsorted(start[by_start], stop[by_start]) - np.arange(1, count + 1)
    first = np.repeat(np.arange(count), behind)
    before = np.cumsum(behind) - behind
    second = first + 1 + np.arange(len(first)) - np.repeat(before, behind)
    rows = by_start[np.concatenate([first, second])]
    others = by_start[np.concatenate([second, first])]
    near_at = np.zeros(count + 1, np.int64)
    near_at[1:] = np.cumsum(np.bincount(rows, minlength=count))
    order = np.argsort(rows * max(count, 1) + others)
    return Lives(start, stop, near_at, others[order].astype(np.int64))


def renumbered(lives: Lives, order: np.ndarray) -> Lives:
    """The same of `order`'s buffers alone, numbered by their place in it."""
    number = np.full(len(lives.near_at) - 1, -1, np.int64)
    number[order] = np.arange(len(order))
    counts = np.diff(lives.near_at)[order]
    ends = np.cumsum(counts)
    taken = np.repeat(lives.near_at[order] - (ends - counts), counts)
    others = number[lives.near[taken + np.arange(len(taken))]]
    chosen = others >= 0
    near_at = np.zeros(len(order) + 1, np.int64)
    near_at[1:] = np.concatenate([[0], np.cumsum(chosen)])[ends]
    return Lives(lives.start[order], lives.stop[order], near_at, others[chosen])
