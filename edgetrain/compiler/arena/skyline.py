"""Fills the lowest valley first, in rounds: buffers that ended too high come earlier next time.

Placed buffers form a skyline over time. Its lowest valley takes the heaviest buffer that fits into
it, preferring buffers that end at its walls; a valley that fits none is filled up to its lower
wall. A buffer's initial weight is its bytes times its steps; each round increases the weight of
buffers that ended above the goal. A round costs a step per section and per buffer that starts in a
valley: thousands of buffers take milliseconds, while greedy placement is quadratic.

Sources: Burke et al. 2004 (best fit on the skyline); Joslin and Clements 1999 (squeaky wheel).
Known limit: it proves nothing, and rarely finds a packing without any gap.
"""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import ZERO, Flags, Floats, Ints, Words

from ..profile import distinct
from .units import GREEDY

WALLS = 8.0  # times its weight, added for each wall that a buffer ends at
HEAVIER = 0.5  # most that a buffer which ended too high gains, as a fraction of its weight
_SEED = 0x9E3779B97F4A7C15
SCALE = 1.0 / 9007199254740992.0


class Valleys(NamedTuple):
    """Buffers by time sections, and the workspace of a round.

    Attributes:
      first, last: sections [first, last) of each buffer; every end of a buffer ends a section.
      size: bytes.  at, order: buffers that begin in each section, compressed rows.
      floor, left: for each section, its filled height and how many buffers it still takes.
      live: how many buffers are live in each section.  weight: of each buffer.
      placed: scratch.  trial, best: offsets in bytes.
    """

    first: Ints
    last: Ints
    size: Ints
    at: Ints
    order: Ints
    floor: Ints
    left: Ints
    live: Ints
    weight: Floats
    placed: Flags
    trial: Ints
    best: Ints


def skyline(
    start: np.ndarray, stop: np.ndarray, size: np.ndarray, goal: int, work: int
) -> tuple[np.ndarray, int]:
    """The best of at least one round, limited by `work` visits of sections and buffers.

    Args:
      start, stop: half-open lifetimes, none empty.  size: bytes.
      goal: height in bytes at which to stop.
    Returns:
      (offsets in bytes, height in bytes).
    """
    ends = distinct(stop)
    first, last = np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop) + 1
    count, sections = len(size), len(ends)
    starts = np.zeros(sections + 1, np.int64)
    starts[1:] = np.cumsum(np.bincount(first, minlength=sections))
    change = np.bincount(first, minlength=sections + 1) - np.bincount(last, minlength=sections + 1)
    weight = size * (last - first).astype(np.float64)
    weight = weight / weight.mean() + 0.01
    rows = [np.zeros(sections, np.int64) for _ in range(2)]
    live = np.cumsum(change)[:sections]
    columns = [first.astype(np.int64), last.astype(np.int64), size]
    offsets = [np.zeros(count, np.int64) for _ in range(2)]
    begun = [starts, np.argsort(first, kind="stable")]
    placed = np.zeros(count, np.bool_)
    scratch = Valleys._make([*columns, *begun, *rows, live, weight, placed, *offsets])
    height = fill_valleys(scratch, goal, work, np.array([_SEED], np.uint64))
    return scratch.best, height


@GREEDY.entry
def fill_valleys(v: Valleys, goal: int, work: int, state: Words) -> int:
    """Like `skyline`, with offsets in `v.best`; returns the height."""
    least, done = ZERO, ZERO
    while done == 0 or (least > goal and done < work):
        height, steps = _round(v)
        done += steps
        if least == 0 or height < least:
            least = height
            for i in range(v.size.size):
                v.best[i] = v.trial[i]
        for i in range(v.size.size):
            if v.trial[i] + v.size[i] > goal:
                v.weight[i] *= 1 + HEAVIER * _random(state)
    return least


@loop
def _random(state):
    """A number in [0, 1) (xorshift)."""
    x = state[0]
    x ^= (x << np.uint64(13)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    x ^= x >> np.uint64(7)
    x ^= (x << np.uint64(17)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    state[0] = x
    return np.float64(x >> np.uint64(11)) * SCALE


@loop
def _round(v):
    """Place all buffers; returns the height and the number of visits."""
    sections = v.floor.size
    for s in range(sections):
        v.floor[s] = 0
        v.left[s] = v.live[s]
    for i in range(v.size.size):
        v.placed[i] = False
    height, done, left = ZERO, ZERO, v.size.size
    while left > 0:
        low = _lowest(v)
        start, stop, floor = low, low + 1, v.floor[low]
        while start > 0 and v.floor[start - 1] <= floor:
            start -= 1
        while stop < sections and v.floor[stop] <= floor:
            stop += 1
        done += sections + v.at[stop] - v.at[start]
        chosen = _heaviest(v, start, stop)
        if chosen < 0:
            _raise(v, start, stop)
            continue
        v.placed[chosen] = True
        v.trial[chosen] = floor
        left -= 1
        top = floor + v.size[chosen]
        for s in range(v.first[chosen], v.last[chosen]):
            v.floor[s] = top
            v.left[s] -= 1
        height = max(height, top)
    return height, done


@loop
def _lowest(v):
    """The lowest section that can still take a buffer."""
    low, floor = ZERO, np.int64(2**62)
    for s in range(v.floor.size):
        if v.left[s] > 0 and v.floor[s] < floor:
            low, floor = s, v.floor[s]
    return low


@loop
def _heaviest(v, start, stop):
    """The buffer for a valley of sections [start, stop); -1 if none fits."""
    chosen, most = np.int64(-1), -1.0
    for k in range(v.at[start], v.at[stop]):
        i = v.order[k]
        if v.placed[i] or v.last[i] > stop:
            continue
        walls = (v.first[i] == start) + (v.last[i] == stop)
        weight = v.weight[i] * (1 + WALLS * walls)
        if weight > most:
            chosen, most = i, weight
    return chosen


@loop
def _raise(v, start, stop):
    """Fill a valley up to its lower wall."""
    sections, wall = v.floor.size, np.int64(2**62)
    if start > 0:
        wall = v.floor[start - 1]
    if stop < sections:
        wall = min(wall, v.floor[stop])
    for s in range(start, stop):
        v.floor[s] = wall
