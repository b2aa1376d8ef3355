"""Places buffers one after the other, each in the lowest or tightest gap; tries several orders.

O(n^2) in buffers per order, less if few share time. Sources: Pisarchyk and Lee
2020 (greedy by size, by breadth); Sekiyama et al. 2018 (best fit).
"""

from collections.abc import Iterator

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import ZERO, Flags, Ints

from ..profile import profile
from .lives import Lives
from .units import GREEDY

# With more buffers and more pairs that share time, only four orders are tried, once.
MANY, MANY_PAIRS = 4000, 1_000_000
NO_LIMIT = 2**62  # a height above all others


@loop
def crowded(lives):
    """Whether to check all placed buffers, instead of only the buffers that share time."""
    return lives.near_at.size == 0


@loop
def _near(lives, offset, placed, queue, i):
    """Number of placed buffers that share time with buffer i; `queue` receives them by offset."""
    count = ZERO
    for k in range(lives.near_at[i], lives.near_at[i + 1]):
        j = lives.near[k]
        if placed[j]:
            queue[count] = j
            count += 1
    gap = ZERO + 1
    while gap * 3 + 1 < count // 4:
        gap = gap * 3 + 1
    while gap > 0:
        for k in range(gap, count):
            j, place = queue[k], k
            while place >= gap and offset[queue[place - gap]] > offset[j]:
                queue[place] = queue[place - gap]
                place -= gap
            queue[place] = j
        gap //= 3
    return count


@loop
def _gap(lives, size, offset, queue, count, tight, i):
    """Offset of buffer i among the first `count` of `queue`, which are sorted by offset."""
    start, stop, nbytes = lives.start[i], lives.stop[i], size[i]
    best, best_gap, low = np.int64(-1), np.int64(2**62), np.int64(0)
    for k in range(count):
        j = queue[k]
        if lives.start[j] >= stop or start >= lives.stop[j]:
            continue
        gap = offset[j] - low
        if gap >= nbytes:
            if not tight:
                return low
            if gap < best_gap:
                best, best_gap = low, gap
        low = max(low, offset[j] + size[j])
    return best if best >= 0 else low


@GREEDY.entry
def fill_in_order(
    lives: Lives,
    size: Ints,
    order: Ints,
    offset: Ints,
    placed: Flags,
    queue: Ints,
    tight: int,
    fixed: int,
    most: int,
) -> int:
    """Fill `offset` (bytes) in the given order; returns the height.

    Stops as soon as the height exceeds `most` bytes; then `offset` is incomplete.

    Args:
      size: bytes, none 0.  order: indices.  offset: receives the result.
      tight: choose the smallest gap that fits, not the lowest.
      placed, queue: workspace, one element per buffer.
      fixed: number of buffers at the start of the order that keep their offset.
    """
    height, together = ZERO, crowded(lives)
    for j in range(size.size):
        placed[j] = False
    for count in range(order.size):
        i = order[count]
        if count >= fixed:
            result = count if together else _near(lives, offset, placed, queue, i)
            offset[i] = _gap(lives, size, offset, queue, result, tight, i)
        height = max(height, offset[i] + size[i])
        if height > most:
            return height
        placed[i] = True
        if together:
            place = count
            while place > 0 and offset[queue[place - 1]] > offset[i]:
                queue[place] = queue[place - 1]
                place -= 1
            queue[place] = i
    return height


def place_in_order(
    lives: Lives,
    size: np.ndarray,
    order: np.ndarray,
    offset: np.ndarray,
    tight: bool,
    fixed: int = 0,
    most: int = NO_LIMIT,
) -> int:
    """Like `fill_in_order`, with its own workspace."""
    placed, queue = np.zeros(len(size), np.bool_), np.zeros(len(size), np.int64)
    return fill_in_order(lives, size, order, offset, placed, queue, tight, fixed, most)


def greedy_orders(lives: Lives, size: np.ndarray, goal: int) -> tuple[np.ndarray, int]:
    """The best of twelve orders in two variants: offsets and height in bytes; stops at `goal`.

    With thousands of buffers that nearly all share time, only four orders in one variant.

    Args:
      size: bytes, none 0.
    """
    best, height = np.zeros(len(size), np.int64), NO_LIMIT
    many = len(size) > MANY and (crowded(lives) or len(lives.near) > MANY_PAIRS)
    ways = (False,) if many else (False, True)
    for order in orders(lives.start, lives.stop, size, 3 if many else 1):
        for tight in ways:
            offset = np.zeros(len(size), np.int64)
            reached = place_in_order(lives, size, order, offset, tight, most=height - 1)
            if reached < height:
                best, height = offset, reached
            if height <= goal:
                return best, height
    return best, height if len(size) else 0


def orders(
    start: np.ndarray, stop: np.ndarray, size: np.ndarray, every: int = 1
) -> Iterator[np.ndarray]:
    """Twelve orders worth trying: by size, length, area, birth, death and crowding.

    Args:
      every: use every n-th order.
    """
    length = stop - start
    crowd: list[np.ndarray] = []
    keys = (
        (-size, -length), (-length, -size), (-size * length, -size), (start, -size),
        (stop, -size), (None, -size), (None, -length), (None, -size * length),
        (None, start), (-stop, -size), (start, -length), (-size, start),
    )  # fmt: skip
    for key, second in keys[::every]:
        if key is None:
            crowd = crowd or [-profile(start, stop, size).most_within(start, stop)]
            key = crowd[0]
        yield np.lexsort((second, key))
