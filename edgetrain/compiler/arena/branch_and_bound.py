"""Exact placement for a series of capacities: the Python side of the search in exact.py.

Which buffer order finds a solution quickly differs between problems, so several orders take turns;
anything independent of order and capacity is computed once. A turn costs at most its share of the
work, and memory quadratic in the number of buffers (only touched as needed).
"""

import functools
from collections.abc import Iterator

import numpy as np

from ..profile import distinct, profile
from .exact import ALLOWED, DONE, Search, fits
from .lives import Lives, lives, renumbered

MOST_BUFFERS = 2500  # with more, nothing is tried: memory of a search is quadratic in them
_MANY, _PART = 600, 8  # with more than _MANY, a search needs at least 1 / _PART of a first turn
_FAILED = 1 << 18  # slots for hashes of states that lead nowhere
_FIRST_SHARE = 4  # from the second turn on, the first order gets this many times the others' share
_GROWTH = 3  # ratio of successive turns' shares


def first_share(count: int) -> float:
    """Work of an order's first turn, in millions of section visits."""
    return max(1.0, 6e-5 * count**2)


def new_search(lives: Lives, size: np.ndarray, order: np.ndarray) -> Search:
    """Make a search over buffers renumbered by `order`."""
    (start, stop, near_at, near), size = renumbered(lives, order), size[order]
    ends = distinct(stop)
    first, last = np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop) + 1
    count, sections = len(size), len(ends)
    trail = near_at[-1] + count + 1
    rooms = [sections, count, count, trail, trail]
    frames = [np.zeros(count + 3, np.int64) for _ in range(8)]
    arrays = [first, last, size, near_at, near]
    arrays += [np.zeros(count, np.int64), np.zeros(count, np.bool_)]
    arrays += [np.zeros(room, np.int64) for room in rooms]
    arrays += [np.zeros((count + 3, count), np.int32) for _ in range(2)]
    arrays += [*frames, np.zeros(count + 3, np.uint64), np.zeros(_FAILED, np.uint64)]
    return Search._make([*arrays, np.zeros(3, np.int64)])


def preferences(
    start: np.ndarray, stop: np.ndarray, size: np.ndarray
) -> Iterator[tuple[np.ndarray, bool]]:
    """Distinct static orders by pairs of keys: length, area, crowding, size and end.

    Which one finds a solution quickly differs between problems, so there are many.

    Yields:
      (order, whether to reorder parts by their remaining buffers).
    """
    crowd = profile(start, stop, size).most_within(start, stop)
    width, area = stop - start, (stop - start) * size
    rows = [
        (width, area, True), (width, crowd, False), (-start, width, True), (stop, width, False),
        (area, width, True), (stop, width, True), (crowd, area, False), (size, width, True),
        (-start, width, False), (area, crowd, False), (width, area, False), (stop, size, False),
        (-start, size, False), (area, size, False), (stop, area, False), (-start, area, False),
        (size, stop, False),
    ]  # fmt: skip
    seen: set[tuple[bytes, bool]] = set()
    for one, two, crowded in rows:
        order = np.lexsort((-area, -two, -one))
        if (order.tobytes(), crowded) not in seen:
            seen.add((order.tobytes(), crowded))
            yield order, crowded


class ExactSearch:
    """Branch and bound over one set of buffers.

    Args:
      start, stop: half-open lifetimes, none empty.  size: bytes.
    """

    def __init__(self, start: np.ndarray, stop: np.ndarray, size: np.ndarray) -> None:
        self._start, self._stop, self._size = start, stop, size
        self._orders: list[tuple[np.ndarray, bool]] = []  # tried so far
        self._further = preferences(start, stop, size)

    @functools.cached_property
    def _lives(self) -> Lives:
        return lives(self._start, self._stop, listed=True)

    def _preferred(self) -> Iterator[tuple[np.ndarray, bool]]:
        yield from self._orders
        for order in self._further:
            self._orders.append(order)
            yield order

    def fit(self, capacity: int, effort: float) -> np.ndarray | None:
        """Offsets within `capacity` bytes; None if not found with this effort.

        The orders take turns with a growing share of the work; the first, which solves most
        problems, gets more from the second turn on. If a turn ends early, nothing fits.

        Args:
          effort: millions of section visits.
        """
        count = len(self._size)
        if count > MOST_BUFFERS or (count > _MANY and _PART * effort < first_share(count)):
            return None
        share, spent = first_share(count), 0.0
        while spent < effort:
            for k, (order, crowded) in enumerate(self._preferred()):
                q = new_search(self._lives, self._size, order)
                part = _FIRST_SHARE * share if k == 0 and spent > 0 else share
                q.work[ALLOWED] = int(min(part, effort - spent) * 1e6)
                if fits(q, capacity, crowded):
                    offsets = np.zeros(count, np.int64)
                    offsets[order] = q.low
                    return offsets
                spent += q.work[DONE] / 1e6
                if q.work[DONE] <= q.work[ALLOWED] or spent >= effort:
                    return None
            share *= _GROWTH
        return None


def branch_and_bound(
    start: np.ndarray, stop: np.ndarray, size: np.ndarray, capacity: int, effort: float
) -> np.ndarray | None:
    """Like `ExactSearch.fit`, for a single capacity."""
    return ExactSearch(start, stop, size).fit(capacity, effort)
