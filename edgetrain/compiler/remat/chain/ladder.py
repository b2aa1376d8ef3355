"""Tables of a chain for several numbers of bytes, and the schedules that they hold.

Each table halves the bytes of the one before, so that slots get finer where bytes are few; equal
stretches of a chain share theirs. A chain of n stages, in groups of n / g, costs slots * g^3 for
each table, which bounds slots and groups alike; it is the same whatever the effort.
"""

import numpy as np

from ..problem import Problem, Schedule
from ..store_all import store_all
from .stages import Chain, chain_of
from .table import Grouped, Table


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
        # (bytes of the whole table, slots, groups): work grows with slots * groups^3.
        slots = 256 if n > 128 else min(4096, max(512, 600_000_000 // n**3))
        plans = [(most * 0.5**rung, slots, 128) for rung in range(6)]
        fine = [(most * 0.5**rung, 40, 260) for rung in (4, 6)]
        if most / exact <= max(slots, 1024):
            plans = [(most + exact, int(most / exact) + 1, 128)]
            fine = [(exact * 40, 40, 260), (exact * 12, 12, 500)]
        if n > 128:
            plans += fine
        for nbytes, slots, groups in plans:
            # Four times the bytes of a finer table leave nothing for it to win.
            if limit < np.inf and 4 * nbytes < limit:
                continue
            unit = nbytes / slots
            self._read(unit, int(min(slots, self.limit // unit + 1)), -(-n // groups))
        self.points.sort(key=lambda point: (point[1], point[0]))

    def _read(self, unit: float, slots: int, size: int) -> None:
        """Note (bytes, cost) wherever one more slot makes the whole chain cheaper."""
        n = len(self.stages)
        whole = size == 1
        table = (
            Table(self.stages, 0, n, unit, slots)
            if whole
            else Grouped(self.stages, size, unit, slots)
        )
        costs = table.table[0, 0, table.table.shape[1] - 1]
        least = np.inf
        for m in range(slots + 1):
            if costs[m] < least * (1 - 1e-6):
                least = float(costs[m])
                self.points.append((m * unit, least, m, table))

    def emit(self, k: int) -> Schedule:
        """The schedule of one point."""
        _, _, m, table = self.points[k]
        runs: list[tuple[str, int]] = []
        table.emit(0, 0, table.table.shape[1] - 1, m, runs)
        schedule = expand(self.problem, self.stages, runs)
        return without_idle_runs(self.problem, schedule) if self.problem.cuts else schedule

    def some(self, most: int) -> list[Schedule]:
        """At most about `most` schedules, spread over the points."""
        count = len(self.points)
        chosen = sorted({round(k) for k in np.linspace(0, count - 1, min(most, count))})
        return [self.emit(k) for k in chosen]


def _divisor(stages: Chain) -> float:
    """The largest number of bytes that all sizes of a chain are multiples of."""
    sizes = np.concatenate([stages.out, stages.saved, stages.grad, stages.run, stages.back])
    return float(max(1, np.gcd.reduce(sizes.astype(np.int64))))


def expand(problem: Problem, stages: Chain, runs: list[tuple[str, int]]) -> Schedule:
    """Steps of the runs of stages; steps outside the chain go where they were."""
    total = len(problem.steps)
    chained = {s for part in (stages.forward, stages.backward) for row in part for s in row}
    seen = [s in chained for s in range(total)]
    schedule: list[int] = []
    once: set[int] = set()
    outside = [s for s in range(total) if not seen[s]]
    at = 0
    for what, k in runs:
        for s in stages.forward[k] if what == "F" else stages.backward[k]:
            # Side effects of the forward follow the first run of what stands before them.
            if s not in once:
                while at < len(outside) and outside[at] < s:
                    schedule.append(outside[at])
                    at += 1
            once.add(s)
            schedule.append(s)
    return (*schedule, *outside[at:])


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
