"""Places large buffers exactly, then fits small ones into the gaps.

Most buffers of a training graph are vectors and narrow maps, next to a few wide ones. Small
buffers cost the exact search as much time but decide little: without them, a placement at the
lower bound is found in milliseconds, and its gaps can hold most of them. The cost is at most
`effort` for each of four definitions of "large" at the first height, and a sixth of that at the
others.
"""

from collections.abc import Sequence

import numpy as np

from ..profile import peak
from .branch_and_bound import ExactSearch
from .greedy import NO_LIMIT, place_in_order
from .lives import Lives

# Buffers are small if the sum of their live bytes never exceeds this fraction of the goal.
SMALL = (0.1, 0.25, 0.02, 0.004)
STEPS = (0.0, 0.005, 0.01, 0.02, 0.04)


def large_first(
    lives: Lives,
    size: np.ndarray,
    goal: int,
    height: int,
    effort: float,
    *,
    above: Sequence[float] = STEPS,
) -> tuple[np.ndarray, int] | None:
    """Offsets and height in bytes; None if nothing below `height` was found.

    Args:
      size: bytes, aligned.
      goal: the target height: a lower bound, or low enough.
      effort: millions of touched sections for each try of the large ones at the first height; a
        sixth at the others.
      above: heights to try for the large ones, as fractions above the goal, rising.
    """
    order = np.argsort(-size, kind="stable")
    align = int(np.gcd.reduce(size))
    start, stop, by_size = lives.start[order], lives.stop[order], size[order]
    larges = dict.fromkeys(_count_large(start, stop, by_size, small * goal) for small in SMALL)
    searches = [ExactSearch(start[:n], stop[:n], by_size[:n]) for n in larges]
    best = None
    for fraction in above:
        capacity = int(goal * (1 + fraction)) // align * align
        share = effort if fraction == above[0] else effort / 6
        if capacity >= height:
            break
        for search in searches:
            result = search.fit(capacity, share)
            if result is None:
                continue
            offset, reached = _fill(lives, size, order, result)
            if reached < height:
                best, height = (offset, reached), reached
            if height <= capacity:
                return best
    return best


def _fill(
    lives: Lives, size: np.ndarray, order: np.ndarray, found: np.ndarray
) -> tuple[np.ndarray, int]:
    """Place the rest of `order` around its first buffers, which are at the offsets `found`."""
    large, rest = order[: len(found)], order[len(found) :]
    area = size[rest] * (lives.stop[rest] - lives.start[rest])
    best, height = found, NO_LIMIT
    for later in (rest, rest[np.argsort(-area, kind="stable")]):
        for tight in (False, True):
            offset = np.zeros(len(size), np.int64)
            offset[large] = found
            whole = np.concatenate([large, later])
            reached = place_in_order(lives, size, whole, offset, tight, len(large), height - 1)
            if reached < height:
                best, height = offset, int(reached)
    return best, height


def _count_large(start: np.ndarray, stop: np.ndarray, size: np.ndarray, most: float) -> int:
    """Number of leading buffers that are large: the rest never has over `most` bytes live."""
    low, high = 0, len(size)
    while low < high:
        middle = (low + high) // 2
        if peak(start[middle:], stop[middle:], size[middle:]) > most:
            low = middle + 1
        else:
            high = middle
    return low
