"""Tables of a chain for several numbers of bytes, and the schedules that they hold.

Each table halves the bytes of the one before, so that slots get finer where bytes are few; equal
stretches of a chain share theirs. A chain of n stages, in groups of n / g, costs slots * g^3 for
each table, which bounds slots and groups alike; it is the same whatever the effort. For one number
of bytes there is a table of its own, of single stages (`table_of`).
"""

from collections.abc import Callable

import numpy as np

from ..problem import Problem, Schedule
from ..store_all import store_all
from .rows import rows_of, used
from .stages import Chain, chain_of
from .table import Grouped, Table

SHORT = 128  # stages: of so many all stretches are tried
# Of one number of bytes: slots of a stage of mean size, and all of them (of a short chain, of a
# long one); what its table holds and adds up at most, numbers both.
STAGE_SLOTS, MOST_SLOTS = 12, (1024, 2048)
MOST_HELD, MOST_ADDED = 20_000_000, 1_500_000_000
REACH = 8  # of long chains whose stages are not alike
_SCALES = (1.0, 0.6, 0.36)  # of the slots, until the table is small enough
_AMPLE = 0.5  # of all bytes: with more, slots of groups may fit better
_LONG_SEGMENT, _SHORTEST_LIMIT = 16.0, 32  # stages over the part of all bytes that there is
_ALL_TRIED, _AHEAD = 32, 8  # stages; points that are tried above the one found by halving


def chain_ladder(problem: Problem, effort: int = 0) -> list[Schedule]:
    """Schedules for a ladder of bytes; none where the problem is no chain of stages.

    `effort` changes nothing: the ladder is fixed.
    """
    stages = chain_of(problem)
    return [] if stages is None else [*store_all(problem), *Ladder(problem, stages).some(48)]


class Ladder:
    """Tables for halving numbers of bytes: finer slots where there are fewer bytes.

    Points above `limit` bytes, by a table's count, are left out; the rest is the same.
    """

    def __init__(self, problem: Problem, stages: Chain, limit: float = np.inf) -> None:
        self.problem, self.stages, self.limit = problem, stages, limit
        n = len(stages)
        needs = stages.back + stages.grad + stages.run
        most = float((stages.out + stages.saved)[1:].sum() + 2 * needs.max())
        exact = _divisor(stages)
        self.points: list[tuple[float, float, int, Table]] = []
        self.tables: list[Table] = []
        if limit < np.inf:
            table = table_of(stages, min(limit, most))
            if table is not None:
                self._note(table)
                whole = bool((table.costs.row[0, 1:] >= 0).all())
                if (n > SHORT and limit < _AMPLE * most) or (table.unit == exact and whole):
                    return  # groups find nothing more, nor do other slots where none is rounded
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
            # Four times the bytes of a finer table leave nothing for it to win.
            if limit < np.inf and 4 * nbytes < limit:
                continue
            unit = nbytes / slots
            self._read(unit, int(min(slots, self.limit // unit + 1)), -(-n // groups))
        self.points.sort(key=lambda point: (point[1], point[0]))

    def _read(self, unit: float, slots: int, size: int) -> None:
        n = len(self.stages)
        if size == 1:
            self._note(Table(self.stages, 0, n, unit, slots))
        else:
            self._note(Grouped(self.stages, size, unit, slots))

    def _note(self, table: Table) -> None:
        """Note (bytes, cost) wherever one more slot makes the whole chain cheaper."""
        self.tables.append(table)
        costs, least = table.whole(), np.inf
        for m in range(len(costs)):
            if costs[m] < least * (1 - 1e-6):
                least = float(costs[m])
                self.points.append((m * table.unit, least, m, table))
        self.points.sort(key=lambda point: (point[1], point[0]))

    def emit(self, k: int) -> Schedule:
        """The schedule of one point."""
        _, _, m, table = self.points[k]
        runs: list[tuple[str, int]] = []
        table.emit(0, 0, len(table.out) - 1, m, runs)
        schedule = expand(self.problem, self.stages, runs)
        return without_idle_runs(self.problem, schedule) if self.problem.cuts else schedule

    def some(self, most: int) -> list[Schedule]:
        """At most about `most` schedules, spread over the points."""
        count = len(self.points)
        chosen = sorted({round(k) for k in np.linspace(0, count - 1, min(most, count))})
        return [self.emit(k) for k in chosen]

    def cheapest(self, fits: Callable[[Schedule], bool]) -> Schedule | None:
        """The first schedule from the cheapest point down that fits.

        Of longer chains not all points are tried: the last that fits is found by halving, and a few
        before it are tried for one whose bytes were rounded up.
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


def table_of(stages: Chain, nbytes: float) -> Table | None:
    """A table of single stages for one number of bytes; None where it would be too large.

    Slots are as small as can be held: none are rounded where all sizes have a large divisor.
    """
    n, exact = len(stages), _divisor(stages)
    mean = max(1.0, float((stages.out + stages.saved)[1:].mean()))
    slots = min(MOST_SLOTS[n > SHORT], max(512, round(STAGE_SLOTS * nbytes / mean)))
    if nbytes / exact <= 2 * slots:
        slots = int(nbytes / exact)
    for scale in _SCALES:
        unit = exact if scale == 1.0 and slots == int(nbytes / exact) else nbytes / (slots * scale)
        for reach in (0, REACH) if n > SHORT else (0,):
            share = nbytes / (n * mean)
            longest = min(n, max(_SHORTEST_LIMIT, int(_LONG_SEGMENT / share))) if reach else n
            row = rows_of(stages.parts(), True, True, reach, longest)
            held = used(row, np.cumsum(stages.out + stages.saved)) / unit
            held = np.minimum(held, slots * scale) + 4
            ends = used(row, np.arange(n + 1))
            added = 4 * held * np.minimum(ends, 4 * reach or n)
            if held.sum() <= MOST_HELD and added.sum() <= MOST_ADDED:
                return Table(stages, 0, n, unit, int(nbytes / unit), row)
    return None


def _divisor(stages: Chain) -> float:
    """The largest number of bytes that all sizes of a chain are multiples of."""
    sizes = np.concatenate([stages.out, stages.saved, stages.grad, stages.run, stages.back])
    return float(max(1, np.gcd.reduce(sizes.astype(np.int64))))


def expand(problem: Problem, stages: Chain, runs: list[tuple[str, int]]) -> Schedule:
    """Steps of the runs of stages; steps outside the chain go where they were."""
    parts = {"F": stages.forward, "B": stages.backward}
    steps = np.array([s for what, k in runs for s in parts[what][k]], np.int64)
    chained = np.zeros(len(problem.steps), np.bool_)
    chained[[s for part in parts.values() for row in part for s in row]] = True
    outside = np.flatnonzero(~chained)
    # Side effects of the forward follow the first run of what stands before them.
    places = np.searchsorted(np.maximum.accumulate(steps), outside, "right")
    return tuple(np.insert(steps, places, outside).tolist())


def without_idle_runs(problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule without runs again of which nothing is read: a stage that hands on some of what
    it makes runs for the sake of that alone."""
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
