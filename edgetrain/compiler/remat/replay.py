"""Measures many schedules of one problem with arrays, in some milliseconds each.

Every making, reading or updating of a value is a row; sorted by value, the rows of one instance
are adjacent. Searches and plans are measured here. `referee.simulate` shares no code with this
module; it checks the chosen schedule, and tests compare the two.
"""

from collections.abc import Sequence

import numpy as np

from .problem import Problem, Schedule, Simulation
from .referee import simulate

_READ, _WRITE, _UPDATE = 0, 1, 2
_MANY = 2**40  # from this many flops on, a sum over a schedule might overflow 64 bits
_Rows = tuple[np.ndarray, np.ndarray]  # starts of the rows and a final end; the numbers


class Replay:
    """Measures schedules of a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        steps = problem.steps
        kinds = ((_READ, "reads"), (_WRITE, "writes"), (_UPDATE, "updates"))
        self._touches = _rows([[v for _, name in kinds for v in getattr(s, name)] for s in steps])
        self._kinds = _rows([[k for k, name in kinds for _ in getattr(s, name)] for s in steps])[1]
        self._pairs = _rows([[v for pair in problem.swaps(s) for v in pair] for s in steps])
        self._after = _rows([s.after for s in steps])
        self._nbytes = np.array(problem.nbytes, np.int64)
        self._cost = np.array([s.cost for s in steps], np.float64)
        flops = [s.flops for s in steps]
        self._flops = np.array(flops, np.int64 if sum(flops) < _MANY else object)
        self._workspace = np.array([s.workspace for s in steps], np.int64)
        self._once = np.array([not s.recomputable for s in steps], np.bool_)
        self._always = np.array(sorted(problem.always_live), np.int64)
        count = len(problem.nbytes)
        self._kept, self._optional, self._present = (
            _mask(count, chosen) for chosen in (problem.kept, problem.optional, problem.always_live)
        )

    def __call__(self, schedule: Schedule) -> Simulation:
        """Like `referee.simulate`, which is called for invalid schedules to describe the fault."""
        order = np.array(schedule, np.int64)
        lives = self._lives(order) if self._is_valid(order) else None
        if lives is None:
            return simulate(self.problem, schedule)
        source = self._takeovers(order, lives)
        value, start, stop, read = lives
        stored = read | ~self._optional[value]
        begins, nbytes = start + (source >= 0), self._nbytes[value]
        change = np.zeros(len(order) + 2, np.int64)
        np.add.at(change, begins[stored], nbytes[stored])
        np.subtract.at(change, stop[stored], nbytes[stored])
        live = np.cumsum(change)[: len(order)] + self._workspace[order]
        again = np.ones(len(order), np.bool_)
        again[np.unique(order, return_index=True)[1]] = False
        cost = np.cumsum(self._cost[order[again]])  # sequentially, as the referee adds
        return Simulation(
            int(live.max(initial=0)),
            float(cost[-1]) if len(cost) else 0.0,
            int(self._flops[order[again]].sum()),
            live,
            np.stack([value, start, stop, source], 1),
        )

    def _is_valid(self, order: np.ndarray) -> bool:
        """Whether each step runs as often as allowed, in a valid order; reads are not checked."""
        count = len(self.problem.steps)
        if not len(order) or order.min() < 0 or order.max() >= count:
            return False
        runs = np.bincount(order, minlength=count)
        if not runs.all() or (runs[self._once] > 1).any():
            return False
        first = np.empty(count, np.int64)
        first[order[::-1]] = np.arange(len(order))[::-1]
        starts, before = self._after
        return bool((first[before] < np.repeat(first, np.diff(starts))).all())

    def _lives(self, order: np.ndarray) -> tuple[np.ndarray, ...] | None:
        """Value, start, stop and whether it is read, for every instance, in the referee's order;
        None if a step reads a value that was never made.
        """
        position, touched = _picked(self._touches[0], order)
        value, kind = self._touches[1][touched], self._kinds[touched]
        moving = np.flatnonzero(~self._present[value])
        moving = moving[np.argsort(value[moving], kind="stable")]
        position, value, kind = position[moving], value[moving], kind[moving]
        first = np.ones(len(value), np.bool_)
        first[1:] = value[1:] != value[:-1]
        if (kind[first] == _READ).any():
            return None
        makes = np.flatnonzero(first | (kind == _WRITE))
        ends = np.append(makes[1:], len(value))
        value, start = value[makes], position[makes]
        stop, read = position[ends - 1] + 1, ends - makes > 1
        kept = self._kept[value]
        if kept.any():
            following = np.append(np.where(value[1:] == value[:-1], start[1:], len(order)), 0)
            following[-1:] = len(order)
            stop, read = np.where(kept, following, stop), read | kept
        made = np.argsort(moving[makes])
        always = np.zeros(len(self._always), np.int64)
        return (
            np.concatenate([self._always, value[made]]),
            np.concatenate([always, start[made]]),
            np.concatenate([always + len(order), stop[made]]),
            np.concatenate([always == 0, read[made]]),
        )

    def _takeovers(self, order: np.ndarray, lives: tuple[np.ndarray, ...]) -> np.ndarray:
        """For each instance, the instance whose bytes it takes over; -1: it has its own."""
        value, start, stop, read = lives
        source = np.full(len(value), -1, np.int64)
        position, places = _picked(self._pairs[0], order)
        pairs = self._pairs[1][places].reshape(-1, 2)
        if not len(pairs):
            return source
        written, taken, position = pairs[:, 0], pairs[:, 1], position[::2]
        new = _found(value, start, written, position)
        old = _found(value, stop, taken, position + 1)
        unread = self._optional[written] & ~read[new]
        fit = (new >= 0) & (old >= 0) & (written != taken) & ~self._present[taken] & ~unread
        fit &= self._nbytes[written] == self._nbytes[taken]
        gone: set[int] = set()
        for one, other in zip(new[fit].tolist(), old[fit].tolist(), strict=True):
            if other not in gone and source[one] < 0:
                source[one] = other
                gone.add(other)
        return source


def _picked(starts: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate some rows: for each number, its index in `rows`, and its place in the data."""
    counts = (starts[1:] - starts[:-1])[rows]
    number = np.repeat(np.arange(len(rows)), counts)
    before = np.cumsum(counts) - counts
    return number, np.arange(len(number)) + np.repeat(starts[rows] - before, counts)


def _found(value: np.ndarray, time: np.ndarray, values: np.ndarray, times: np.ndarray):
    """Index of the last instance with each value and time, or -1."""
    scale = max(int(time.max(initial=0)), int(times.max(initial=0))) + 1
    keys, wanted = value * scale + time, values * scale + times
    by_key = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys, wanted, "right", by_key) - 1
    result = by_key[place]
    return np.where((place >= 0) & (keys[result] == wanted), result, -1)


def _rows(rows: Sequence[Sequence[int]]) -> _Rows:
    starts = np.zeros(len(rows) + 1, np.int64)
    starts[1:] = np.cumsum([len(row) for row in rows])
    return starts, np.array([number for row in rows for number in row], np.int64)


def _mask(count: int, chosen: frozenset[int]) -> np.ndarray:
    mask = np.zeros(count, np.bool_)
    mask[sorted(chosen)] = True
    return mask
