"""The archive of non-dominated decisions, compiled: peak ascending, extra cost descending."""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import Flags, Floats, IntRows, Ints

from .units import SEARCH


class Archive(NamedTuple):
    """The front as points in order; the k-th point's decisions are in row `row[k]`."""

    peak: Ints
    extra: Floats
    row: Ints
    busy: Flags
    filled: Ints
    drops: IntRows
    dropped: Ints
    order: IntRows


def new_archive(points: int, drops: int, steps: int) -> Archive:
    """An empty archive for `points` decisions of at most `drops` drops."""
    return Archive(
        np.zeros(points + 1, np.int64),
        np.zeros(points + 1, np.float64),
        np.zeros(points + 1, np.int64),
        np.zeros(points + 1, np.bool_),
        np.zeros(1, np.int64),
        np.zeros((points + 1, drops), np.int64),
        np.zeros(points + 1, np.int64),
        np.zeros((points + 1, steps), np.int64),
    )


def kept(a: Archive) -> Archive:
    """A copy that accepts no more points."""
    n = int(a.filled[0])
    rows = a.row[:n]
    most = int(a.dropped[rows].max(initial=0))
    drops, dropped, order = a.drops[rows, :most].copy(), a.dropped[rows], a.order[rows]
    busy = np.ones(n, np.bool_)
    result = a.peak[:n].copy(), a.extra[:n].copy(), np.arange(n), busy, a.filled.copy()
    return Archive(*result, drops, dropped, order)


@loop
def find(a, budget):
    """Index of the cheapest point of at most `budget` bytes, or -1."""
    low, high = 0, a.filled[0]
    while low < high:
        middle = (low + high) // 2
        if a.peak[middle] <= budget:
            low = middle + 1
        else:
            high = middle
    return low - 1


@SEARCH.entry
def offer(a: Archive, peak: int, extra: float, order: Ints, drops: Ints, count: int) -> int:
    """Keep the decisions if no point is at least as good in both peak and extra cost; 1 if kept.

    A full archive drops the point whose neighbours are closest to each other.
    """
    offset = find(a, peak)
    if count > a.drops.shape[1] or (offset >= 0 and a.extra[offset] <= extra + 1e-12):
        return 0
    if offset < 0 or a.peak[offset] < peak:
        offset += 1
    stop = offset
    while stop < a.filled[0] and a.extra[stop] >= extra - 1e-12:
        stop += 1
    _remove(a, offset, stop)
    n = a.filled[0]
    if n == a.row.size - 1:
        worst = _crowded(a)
        _remove(a, worst, worst + 1)
        n -= 1
        offset -= worst < offset
    for j in range(n, offset, -1):
        a.peak[j], a.extra[j], a.row[j] = a.peak[j - 1], a.extra[j - 1], a.row[j - 1]
    row = 0
    while a.busy[row]:
        row += 1
    a.busy[row] = True
    a.peak[offset], a.extra[offset], a.row[offset] = peak, extra, row
    for j in range(count):
        a.drops[row, j] = drops[j]
    for j in range(order.size):
        a.order[row, j] = order[j]
    a.dropped[row] = count
    a.filled[0] = n + 1
    return 1


@loop
def _remove(a, start, stop):
    n = a.filled[0]
    for j in range(start, stop):
        a.busy[a.row[j]] = False
    for j in range(stop, n):
        k = j - stop + start
        a.peak[k], a.extra[k], a.row[k] = a.peak[j], a.extra[j], a.row[j]
    a.filled[0] = n - (stop - start)


@loop
def _crowded(a):
    n = a.filled[0]
    worst, least = 1, 1e300
    for j in range(1, n - 1):
        gap = (np.log(a.peak[j + 1]) - np.log(a.peak[j - 1])) * (a.extra[j - 1] - a.extra[j + 1])
        if gap < least:
            worst, least = j, gap
    return worst
