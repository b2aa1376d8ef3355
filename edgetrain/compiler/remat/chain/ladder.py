"""Tables of a chain for several memory limits, and the schedules in them.

Each table covers half the bytes of the previous one, so slots get finer as memory shrinks; equal
stretches of a chain share rows. For a chain of n stages in groups of n / g, a table costs
slots * g^3, which limits slots and groups; it does not depend on the effort. A single memory limit
gets separate tables of single stages (`tables_of`).
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from ..problem import Problem, Schedule
from ..store_all import store_all
from .rows import rows_of, used
from .stages import Chain, chain_of
from .table import Grouped, Table

SHORT = 128  # chains of at most this many stages try all stretches
# For a single memory limit: slots for a stage of mean size, and total slots (short chain, long
# chain); the most numbers its table may hold, and the most additions.
STAGE_SLOTS, MOST_SLOTS = 12, (1024, 2048)
MOST_HELD, MOST_ADDED = 60_000_000, 6_000_000_000
# (reach of rows_of, scale of slots) to try until a table is small enough. Unless all stages are
# alike, segment ends matter more than the rounding of slots.
_FINE, _COARSE = (4.0, 2.0, 1.0), (1.0, 0.6, 0.36)
_SHORT_TRIED = [(0, scale) for scale in (*_FINE, *_COARSE[1:])]
_LONG_TRIED = [(reach, scale) for reach in (0, 16) for scale in _FINE] + [(8, s) for s in _COARSE]
_AMPLE = 0.5  # of all bytes: above this limit, grouped tables may fit better
# The longest segment: the first times (all bytes / limit), in stages, but at least the second.
_LONG_SEGMENT, _SHORTEST_LIMIT = 16.0, 32
_ALL_TRIED, _AHEAD = 32, 8  # stages; points tried before the one that bisection finds


def chain_ladder(problem: Problem, effort: int = 0) -> list[Schedule]:
    """Schedules for a ladder of memory limits; empty if the problem is not a chain of stages.

    `effort` is ignored: the ladder is fixed.
    """
    stages = chain_of(problem)
    if stages is None:
        return []
    ladder = Ladder(problem, stages, frees=not problem.cuts)
    return [*store_all(problem), *ladder.some(48)]


class Ladder:
    """Tables for successively halved memory limits: the fewer bytes, the finer the slots.

    Points that need more than `limit` bytes by a table's count are left out; other points are
    unchanged. `frees` is passed to the tables.
    """

    def __init__(
        self, problem: Problem, stages: Chain, limit: float = np.inf, frees: bool = True
    ) -> None:
        self.problem, self.stages, self.limit, self.frees = problem, stages, limit, frees
        n = len(stages)
        needs = stages.back + stages.grad + stages.run
        most = float((stages.out + stages.saved)[1:].sum() + 2 * needs.max())
        exact = _divisor(stages)
        self.points: list[tuple[float, float, int, Table]] = []
        self.tables: list[Table] = []
        if limit < np.inf:
            tables = tables_of(stages, min(limit, most))
            for table in tables:
                self._note(table)
            if tables:
                whole = bool((tables[0].costs.row[0, 1:] >= 0).all())
                if (n > SHORT and limit < _AMPLE * most) or (tables[0].unit == exact and whole):
                    return  # groups can't improve on this, nor can other slots without rounding
        # (bytes of the whole table, slots, groups): work grows with slots * groups^3.
        slots = 256 if n > SHORT else min(4096, max(512, 600_000_000 // n**3))
        plans = [(most * 0.5**rung, slots, SHORT) for rung in range(6)]
        fine = [(most * 0.5**rung, 40, 260) for rung in (4, 6)]
        if most / exact <= max(slots, 1024):
            plans = [(most + exact, int(most / exact) + 1, SHORT)]
            fine = [(exact * 40, 40, 260), (exact * 12, 12, 500)]
        if n > SHORT:
            plans += fine
        for nbytes, slots, groups in plans:
            # A finer table can't win anything when the limit is four times its bytes.
            if limit < np.inf and 4 * nbytes < limit:
                continue
            unit = nbytes / slots
            self._read(unit, int(min(slots, self.limit // unit + 1)), -(-n // groups))
        self.points.sort(key=lambda point: (point[1], point[0]))

    def _read(self, unit: float, slots: int, size: int) -> None:
        n = len(self.stages)
        if size == 1:
            self._note(Table(self.stages, 0, n, unit, slots, frees=self.frees))
        else:
            self._note(Grouped(self.stages, size, unit, slots, self.frees))

    def _note(self, table: Table) -> None:
        """Add a point (bytes, cost) wherever one more slot makes the whole chain cheaper."""
        self.tables.append(table)
        costs, least = table.whole(), np.inf
        for m in range(len(costs)):
            if costs[m] < least * (1 - 1e-6):
                least = float(costs[m])
                self.points.append((m * table.unit, least, m, table))
        self.points.sort(key=lambda point: (point[1], point[0]))

    def emit(self, k: int) -> Schedule:
        """The schedule of point k."""
        _, _, m, table = self.points[k]
        runs: list[tuple[str, int]] = []
        table.emit(0, 0, len(table.out) - 1, m, runs)
        schedule = expand(self.problem, self.stages, runs)
        exact = self.problem.cuts or self.limit < np.inf
        return without_idle_runs(self.problem, schedule) if exact else schedule

    def some(self, most: int) -> list[Schedule]:
        """About `most` schedules at most, spread over the points."""
        count = len(self.points)
        chosen = sorted({round(k) for k in np.linspace(0, count - 1, min(most, count))})
        return [self.emit(k) for k in chosen]

    def cheapest(self, fits: Callable[[Schedule], bool]) -> Schedule | None:
        """The cheapest schedule that fits, or None.

        For longer chains not all points are tried: bisection finds the cheapest one that fits, and
        a few cheaper points are tried because their bytes may have been rounded up.
        """
        if len(self.stages) <= _ALL_TRIED:
            return next((s for k in range(len(self.points)) if fits(s := self.emit(k))), None)
        best, least = None, np.inf
        for table in self.tables:
            mine = [k for k, p in enumerate(self.points) if p[3] is table and p[1] < least]
            if best is not None and not (mine and fits(self.emit(mine[-1]))):
                continue
            low, high = 0, len(mine)
            while low < high:
                middle = (low + high) // 2
                if fits(self.emit(mine[middle])):
                    high = middle
                else:
                    low = middle + 1
            for k in mine[max(0, low - _AHEAD) : low + 1]:
                if self.points[k][1] < least and fits(schedule := self.emit(k)):
                    best, least = schedule, self.points[k][1]
        return best


def tables_of(stages: Chain, nbytes: float) -> list[Table]:
    """Tables of single stages for one memory limit; empty if they would be too large.

    Slots are as small as the table size allows; nothing is rounded if all sizes have a large common
    divisor. Otherwise a second table has larger slots, because it is partly luck which schedules
    fit after rounding.
    """
    n, exact = len(stages), _divisor(stages)
    mean = max(1.0, float((stages.out + stages.saved)[1:].mean()))
    wanted = min(MOST_SLOTS[n > SHORT], max(512, round(STAGE_SLOTS * nbytes / mean)))
    kept = np.cumsum(stages.out + stages.saved)
    longest = min(n, max(_SHORTEST_LIMIT, int(_LONG_SEGMENT * n * mean / nbytes)))
    rows = cache(lambda reach: rows_of(stages.parts(), True, True, reach, longest if reach else n))
    result: list[Table] = []
    for reach, scale in _LONG_TRIED if n > SHORT else _SHORT_TRIED:
        slots = wanted * scale
        unit = exact if nbytes / exact <= 2 * slots else nbytes / slots
        row = rows(reach)
        held = np.minimum(used(row, kept) / unit, nbytes / unit) + 4
        added = 4 * held * np.minimum(used(row, np.arange(n + 1)), 4 * reach or n)
        if held.sum() <= MOST_HELD and added.sum() <= MOST_ADDED:
            result.append(Table(stages, 0, n, unit, int(nbytes / unit), row))
            if unit == exact or len(result) == 2:
                break
    return result


def _divisor(stages: Chain) -> float:
    """The greatest common divisor of all sizes of a chain, in bytes."""
    sizes = np.concatenate([stages.out, stages.saved, stages.grad, stages.run, stages.back])
    return float(max(1, np.gcd.reduce(sizes.astype(np.int64))))


def expand(problem: Problem, stages: Chain, runs: list[tuple[str, int]]) -> Schedule:
    """The steps of runs of stages; steps outside the chain keep their places."""
    parts = {"F": stages.forward, "B": stages.backward}
    steps = np.array([s for what, k in runs for s in parts[what][k]], np.int64)
    chained = np.zeros(len(problem.steps), np.bool_)
    chained[[s for part in parts.values() for row in part for s in row]] = True
    outside = np.flatnonzero(~chained)
    # Side effects of the forward follow the first run of the steps before them.
    places = np.searchsorted(np.maximum.accumulate(steps), outside, "right")
    return tuple(np.insert(steps, places, outside).tolist())


def without_idle_runs(problem: Problem, schedule: Schedule) -> Schedule:
    """Remove repeated runs whose output is not read. A repeated stage runs only the steps needed
    for the values that are read.
    """
    begun = {k: position for position, k in reversed([*enumerate(schedule)])}
    wanted: set[int] = set()
    kept: list[int] = []
    for position in range(len(schedule) - 1, -1, -1):
        step = problem.steps[schedule[position]]
        first = begun[step.id] == position
        if first or step.updates or not wanted.isdisjoint(step.writes):
            wanted.difference_update(step.writes)
            wanted.update(step.reads, step.updates)
            kept.append(step.id)
    return tuple(kept[::-1])
