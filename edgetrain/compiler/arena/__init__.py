"""Placement: an offset for every buffer of a schedule, in as few bytes as can be found."""

from collections.abc import Sequence

import numpy as np

from edgetrain.errors import UsageError

from .exact import branch_and_bound
from .greedy import orders, place_in_order
from .hill_climb import hill_climb
from .large_first import STEPS, large_first
from .problem import Buffer, aligned, peak_live
from .validate import PlacementError, validate

DEFAULT_EFFORT = 100
LARGE_EFFORT = 30  # of one try of the large buffers
NEAR = 256  # a gap of less than this part of the bound is not halved


def greedy(
    buffers: Sequence[Buffer], *, capacity: int | None = None, align: int = 64
) -> tuple[list[int], int]:
    """The best of twelve greedy orders, twice; stops at the lower bound or `capacity`.

    Returns:
      Offsets in bytes, ordered as `buffers`, and the height in bytes.
    """
    start, stop, size = _columns(buffers, align)
    goal = peak_live(buffers, align) if capacity is None else capacity
    best, height = np.zeros(len(size), np.int64), 2**62
    for order in orders(start, stop, size):
        for tight in (False, True):
            offset = np.zeros(len(size), np.int64)
            reached = place_in_order(start, stop, size, order, offset, tight)
            if reached < height:
                best, height = offset, reached
            if height <= goal:
                return best.tolist(), int(height)
    return best.tolist(), int(height) if len(size) else 0


def place(
    buffers: Sequence[Buffer],
    *,
    capacity: int | None = None,
    align: int = 64,
    effort: int = DEFAULT_EFFORT,
) -> tuple[list[int], int]:
    """Assign offsets so that no two live buffers overlap.

    Greedy orders first; where they miss the goal, the large buffers exactly and the small ones
    around them; then branch and bound of all for capacities between the lower bound and the best
    height so far; then hill climbing. There is always a result, also where it is higher than
    `capacity`: compare the height.

    Args:
      buffers: lifetimes in steps; nbytes in bytes.
      capacity: stop at this height; None aims at the lower bound (`peak_live`).
      align: every offset is a multiple of it; sizes are rounded up to it.
      effort: work to spend, in millions of steps of the search, never time.
    Returns:
      Offsets in bytes, ordered as `buffers`, and the height in bytes.
    """
    offsets, height = greedy(buffers, capacity=capacity, align=align)
    bound = peak_live(buffers, align)
    goal = bound if capacity is None else max(bound, capacity // align * align)
    if height <= goal:
        return offsets, height
    start, stop, size = _columns(buffers, align)
    live = np.flatnonzero((stop > start) & (size > 0))
    columns = start[live], stop[live], size[live]
    above = STEPS if capacity is None else STEPS[:1]
    rough = large_first(*columns, goal, height, min(effort * 0.3, LARGE_EFFORT), above=above)
    if rough is not None:
        offsets, height = _scatter(rough[0], live, len(size)), rough[1]
    spare = effort * 0.8 if capacity is not None else effort * 0.4
    low = goal
    for _ in range(1 if capacity is not None else 8):
        if height - low <= (0 if low == goal else goal // NEAR):
            break
        found = branch_and_bound(*columns, low, spare)
        if found is not None:
            offsets, height = _scatter(found, live, len(size)), low
            break
        # Half the gap to the best height: where the bound is out of reach, get near it.
        low, spare = (low + height) // 2 // align * align, max(1.0, spare / 2)
    if height > goal and len(live):
        order = np.lexsort((np.array(offsets)[live], -columns[2]))
        placed, reached = hill_climb(*columns, order, goal, int(effort * 0.2e6) + 1, 1)
        if reached < height:
            offsets, height = _scatter(placed, live, len(size)), int(reached)
    top = max((at + int(n) for at, n in zip(offsets, size, strict=True)), default=0)
    return offsets, top


def _scatter(found: np.ndarray, live: np.ndarray, count: int) -> list[int]:
    """Offsets of all buffers from those of the live ones."""
    offsets = np.zeros(count, np.int64)
    offsets[live] = found
    return offsets.tolist()


def _columns(buffers: Sequence[Buffer], align: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """start, stop and aligned size as arrays."""
    for buffer in buffers:
        if buffer.nbytes < 0 or buffer.stop < buffer.start:
            raise UsageError(f"{buffer}: expected nbytes >= 0 and stop >= start.")
    rows = [(b.start, b.stop, aligned(b.nbytes, align)) for b in buffers]
    table = np.array(rows, np.int64).reshape(-1, 3)
    return tuple(np.ascontiguousarray(column) for column in table.T)  # type: ignore[return-value]


__all__ = [
    "DEFAULT_EFFORT",
    "Buffer",
    "PlacementError",
    "aligned",
    "greedy",
    "peak_live",
    "place",
    "validate",
]
