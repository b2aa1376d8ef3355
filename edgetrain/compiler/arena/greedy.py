"""Place buffers one after the other, each at the lowest or tightest free gap; several orders.

O(n^2) in buffers for one order. Sources: Pisarchyk and Lee 2020 (greedy by size, by breadth);
Sekiyama et al. 2018 (best fit).
"""

import numpy as np

from edgetrain.kernels.loops import ZERO, Ints

from .units import GREEDY


@GREEDY.entry
def fill_in_order(
    start: Ints,
    stop: Ints,
    size: Ints,
    order: Ints,
    offset: Ints,
    placed: Ints,
    tight: int,
    fixed: int,
) -> int:
    """Fill `offset` (bytes) in the given order; returns the height.

    Args:
      start, stop: lifetimes, half-open.  size: bytes.  order: indices.
      offset: receives the result.  tight: choose the smallest gap that fits, not the lowest.
      placed: scratch, one for each of the order.
      fixed: so many buffers of the order keep the offset they have.
    """
    n = order.size
    height = ZERO
    for count in range(n):
        i = order[count]
        best, best_gap, low = np.int64(-1), np.int64(2**62), np.int64(0)
        for k in range(count if count >= fixed else 0):
            j = placed[k]
            if start[j] >= stop[i] or start[i] >= stop[j]:
                continue
            gap = offset[j] - low
            if gap >= size[i]:
                if not tight:
                    best = low
                    break
                if gap < best_gap:
                    best, best_gap = low, gap
            low = max(low, offset[j] + size[j])
        if best < 0:
            best = low if count >= fixed else offset[i]
        offset[i] = best
        height = max(height, best + size[i])
        k = count
        while k > 0 and offset[placed[k - 1]] > best:
            placed[k] = placed[k - 1]
            k -= 1
        placed[k] = i
    return height


def place_in_order(
    start: np.ndarray,
    stop: np.ndarray,
    size: np.ndarray,
    order: np.ndarray,
    offset: np.ndarray,
    tight: bool,
    fixed: int = 0,
) -> int:
    """As `fill_in_order`, with scratch of its own."""
    placed = np.zeros(len(order), np.int64)
    return fill_in_order(start, stop, size, order, offset, placed, tight, fixed)


def orders(start: np.ndarray, stop: np.ndarray, size: np.ndarray) -> list[np.ndarray]:
    """Twelve orders worth trying: by size, length, area, birth, death and crowding."""
    length = stop - start
    steps = np.unique(np.concatenate([start, stop]))
    first, last = np.searchsorted(steps, start), np.searchsorted(steps, stop)
    load = np.zeros(len(steps) + 1, np.int64)
    np.add.at(load, first, size)
    np.add.at(load, last, -size)
    load = np.cumsum(load)
    crowd = np.array([load[a:b].max(initial=0) for a, b in zip(first, last, strict=True)])
    keys = [
        (-size, -length), (-length, -size), (-size * length, -size), (start, -size),
        (stop, -size), (-crowd, -size), (-crowd, -length), (-crowd, -size * length),
        (-crowd, start), (-stop, -size), (start, -length), (-size, start),
    ]  # fmt: skip
    return [np.lexsort((second, key)) for key, second in keys]
