"""Placement: finds offsets for the buffers of a schedule, in as few bytes as possible."""

from collections.abc import Sequence

import numpy as np

from edgetrain.errors import UsageError

from .branch_and_bound import ExactSearch, first_share
from .greedy import greedy_orders
from .hill_climb import hill_climb, move_work
from .large_first import STEPS, large_first
from .lives import lives
from .problem import Buffer, aligned, peak_live, table_of
from .skyline import skyline
from .validate import PlacementError, validate

DEFAULT_EFFORT = 100
LARGE_EFFORT = 30  # most effort of one try of the large buffers
SKYLINE = 2.0  # of the effort, for the skyline with more than MANY buffers; its looks cost a tenth
LEAST_CLIMB = 1.0  # least effort of each climb before exact searches; enough for dozens of buffers
# Shares of the effort: the climb before exact searches, large buffers, all buffers (doubled if a
# capacity is given), and the climb at the end. A climb counts comparisons.
FIRST_CLIMB, LARGE, WHOLE, LAST_CLIMB = 0.01, 0.3, 0.4, 0.2
HALVINGS = 8  # capacities that the exact search of all buffers tries
NEAR = 256  # a gap below bound / NEAR is not halved
WORTH = 0.003  # share of all bytes: if the possible gain is less, effort shrinks in proportion
LEAST_EFFORT = 1.0
FEW = 128  # at most this many buffers climb before exact searches
MANY = 600  # with more buffers, no exact search of all starts unless it can end its first pass
LOWER_CLIMB = 16.0  # most effort of the climb below a capacity that is met
_FIRST_SEEDS, _LAST_SEED, _LOWER_SEED = (2, 3, 4, 5), 1, 4  # seeds of climbs


def greedy(
    buffers: Sequence[Buffer], *, capacity: int | None = None, align: int = 64
) -> tuple[list[int], int]:
    """The best of twelve greedy orders in two variants; stops at the lower bound or `capacity`.

    Returns:
      Offsets in bytes, ordered as `buffers`, and the height in bytes.
    """
    goal = peak_live(buffers, align) if capacity is None else capacity
    placing = _Placing(_columns(buffers, align), goal)
    return placing.offsets.tolist(), placing.height


def place(
    buffers: Sequence[Buffer] | np.ndarray,
    *,
    capacity: int | None = None,
    align: int = 64,
    effort: float = DEFAULT_EFFORT,
    beside: int = 0,
) -> tuple[list[int], int]:
    """Assign offsets so that no two live buffers overlap.

    Tries greedy orders first. If they miss the goal: short hill climbing for few buffers, or the
    skyline heuristic for many; then exact search for large buffers, with small ones around them;
    then branch and bound of all buffers, for capacities between the lower bound and the best
    height; then hill climbing again. The result may be higher than `capacity`: compare the height.

    Args:
      buffers: lifetimes in steps; nbytes in bytes; or as an array of start, stop, nbytes.
      capacity: after reaching this height, only a short climb follows; None: aim at the lower
        bound (`peak_live`).
      align: alignment of offsets and sizes.
      effort: limit on work, in millions of search steps (not time).
      beside: bytes needed in addition: the smaller the possible relative gain, the less work is
        spent.
    Returns:
      Offsets in bytes, ordered as `buffers`, and the height in bytes.
    """
    bound = peak_live(buffers, align)
    goal = bound if capacity is None else max(bound, capacity // align * align)
    placing = _Placing(_columns(buffers, align), goal)
    if placing.height > goal:
        gain = (placing.height - goal) / (beside + placing.height)
        effort = max(LEAST_EFFORT, effort * min(1.0, gain / WORTH))
        placing.improve(effort, capacity is None, align)
    if bound < placing.height <= goal:
        placing.lower(bound, min(effort, LOWER_CLIMB))
    return placing.offsets.tolist(), placing.height


class _Placing:
    """The best offsets so far, initially greedy ones, for buffers that should fit below `goal`.

    Buffers with size or lifetime 0 are at 0.
    """

    def __init__(self, columns: tuple[np.ndarray, ...], goal: int) -> None:
        start, stop, size = columns
        self.live = np.flatnonzero((stop > start) & (size > 0))
        self.lives, self.size = lives(start[self.live], stop[self.live]), size[self.live]
        self.goal = goal
        self.offsets = np.zeros(len(size), np.int64)
        self._take(*greedy_orders(self.lives, self.size, goal))

    def improve(self, effort: float, open_ended: bool, align: int) -> None:
        """Try one method after the other until the goal is met.

        Hill climbing comes first for some dozens of buffers; with more, placing large ones first
        gains more.

        Args:
          open_ended: the goal is the lower bound, which may be unreachable, not a capacity.
        """
        count, share = len(self.live), LEAST_CLIMB + effort * FIRST_CLIMB
        if count <= FEW:
            self._climbs(share)
        if count > MANY and self.height > self.goal:
            start, stop = self.lives.start, self.lives.stop
            result, height = skyline(start, stop, self.size, self.goal, int(effort * SKYLINE * 1e6))
            if height < self.height:
                self._take(result, height)
        if self.height <= self.goal:
            return
        above = STEPS if open_ended else STEPS[:1]
        rough = large_first(
            self.lives,
            self.size,
            self.goal,
            self.height,
            min(effort * LARGE, LARGE_EFFORT),
            above=above,
        )
        if rough is not None:
            self._take(*rough)
        spare = effort * (WHOLE if open_ended else 2 * WHOLE)
        if count <= MANY or spare >= first_share(count):
            self._search(spare, open_ended, align)
        if count > FEW:
            self._climbs(share)
        now = self.offsets[self.live]
        self._climb(np.lexsort((now, -self.size)), effort * LAST_CLIMB, _LAST_SEED)

    def lower(self, goal: int, effort: float) -> None:
        """After reaching the goal, climb on with a small effort."""
        self.goal = goal
        self._climb(np.lexsort((-self.size, self.offsets[self.live])), effort, _LOWER_SEED)

    def _climbs(self, share: float) -> None:
        for seed in _FIRST_SEEDS:
            now = self.offsets[self.live]
            keys = (now, -self.size) if seed % 2 else (-self.size, now)  # by size; by offset
            self._climb(np.lexsort(keys), share, seed)

    def _search(self, spare: float, open_ended: bool, align: int) -> None:
        """Branch and bound; if the goal is unreachable, halve the gap to the best height."""
        exact, low = ExactSearch(self.lives.start, self.lives.stop, self.size), self.goal
        for _ in range(HALVINGS if open_ended else 1):
            if self.height - low <= (0 if low == self.goal else self.goal // NEAR):
                break
            result = exact.fit(low, spare)
            if result is not None:
                self._take(result, low)
                break
            low, spare = (low + self.height) // 2 // align * align, max(1.0, spare / 2)

    def _climb(self, order: np.ndarray, effort: float, seed: int) -> None:
        work = int(effort * 1e6) + 1
        # Fewer moves than there are buffers lead nowhere.
        if self.height <= self.goal or work < len(order) * move_work(self.lives, len(order)):
            return
        placed, reached = hill_climb(self.lives, self.size, order, self.goal, work, seed)
        if reached < self.height:
            self._take(placed, int(reached))

    def _take(self, found: np.ndarray, height: int) -> None:
        """Use these offsets of the live buffers."""
        self.offsets[self.live] = found
        self.height = height


def _columns(buffers: Sequence[Buffer] | np.ndarray, align: int) -> tuple[np.ndarray, ...]:
    """Arrays of start, stop and aligned size."""
    table = table_of(buffers, align)
    wrong = np.flatnonzero((table[:, 2] < 0) | (table[:, 1] < table[:, 0]))
    if len(wrong):
        raise UsageError(f"{buffers[wrong[0]]}: expected nbytes >= 0 and stop >= start.")
    return tuple(np.ascontiguousarray(column) for column in table.T)


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
