"""Any graph: drops on the real peak, annealed down a ladder of budgets.

Known inefficiency: one value is dropped at a time, so schedules of several levels are found
step by step; forgetful seeds give them at once, and the chain solver's where the graph is a chain
of blocks.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from . import anneal, archive, engine, thin
from .eager import forgetful
from .packed import Packed, pack
from .problem import Problem, Schedule
from .profile import Idle, crossing, cuts, idle_values

MILLION = 1_000_000
_SEED = 88172645463325252


def general(problem: Problem, effort: int, seeds: Iterable[Schedule] = ()) -> list[Schedule]:
    """Non-dominated schedules of a problem, by increasing peak.

    Two searches with random numbers of their own run side by side and exchange what they found
    once, so that the result does not depend on the processors there are. The second one starts
    from forgetful seeds too: it looks after tight budgets, the first one after ample ones.

    Args:
      problem: any.
      effort: millions of simulated steps, at most one for each step of the problem; the result
        depends on it and never on time.
      seeds: schedules to start from besides the one that recomputes nothing.
    """
    first = Search(problem)
    first.offer(tuple(range(len(problem.steps))))
    first.seed()
    for seed in seeds:
        first.offer(seed)
    searches = [first, Search(problem, first)]
    searches[1].take(first)
    searches[1].forget()
    effort = min(effort, len(problem.steps))
    for _ in range(2):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda search: search.run(effort / 4), searches))
        searches[0].take(searches[1])
        searches[1].take(searches[0])
    return first.schedules()


class Moves(NamedTuple):
    """The idle values as the compiled moves need them; `place` is -1 for other values."""

    value: np.ndarray
    born: np.ndarray
    key: np.ndarray
    density: np.ndarray
    place: np.ndarray


def moves(idle: Idle, values: int) -> Moves:
    """Density is the cost of making a value again per byte."""
    place = np.full(values, -1, np.int64)
    place[idle.value] = np.arange(len(idle.value))
    density = idle.cost / np.maximum(idle.nbytes, 1)
    return Moves(idle.value, idle.born, idle.keys(values), density, place)


class Search:
    """The archive of one problem and the compiled loops that fill it."""

    def __init__(self, problem: Problem, like: "Search | None" = None) -> None:
        self.problem = problem
        self.packed: Packed = like.packed if like else pack(problem)
        steps = len(problem.steps)
        longest = 12 * steps + 64
        self.traces = [engine.new_trace(self.packed, longest) for _ in range(2)]
        points = 256 if steps <= 2500 else 96
        self.archive = archive.new_archive(points, 6 * steps + 64, steps)
        self.idle: Idle = like.idle if like else idle_values(problem, self.packed)
        self.moves = moves(self.idle, len(problem.nbytes))
        self.state = np.array([_SEED + (7919 if like else 0)], np.uint64)

    def offer(self, schedule: Schedule) -> None:
        """Translate a schedule into decisions and keep it where nothing dominates it."""
        self.offer_drops(*decisions(self.problem, schedule))

    def seed(self) -> None:
        """Offer cuts into several numbers of segments, with the values dear to make kept or not."""
        idle, keys = self.idle, self.moves.key
        order = np.arange(len(self.problem.steps))
        density = np.sort(self.moves.density)
        limits = [density[int(q * (len(density) - 1))] for q in np.linspace(0.05, 1, 16)]
        for parts in (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 28, 40, 60):
            held = np.zeros(len(idle.value), np.bool_)
            for position in cuts(self.problem, idle, parts):
                held |= crossing(idle, position)
            for limit in limits:
                self.offer_drops(order, np.sort(keys[~held & (self.moves.density <= limit)]))

    def forget(self) -> None:
        """Offer the forgetful seeds."""
        order = np.arange(len(self.problem.steps))
        room = self.archive.drops.shape[1]
        for peak, extra, drops in forgetful(self.packed, room, self.traces[0]):
            archive.offer(self.archive, peak, extra, order, drops, len(drops))

    def offer_drops(self, order: np.ndarray, drops: np.ndarray) -> None:
        """Keep these decisions where nothing dominates them."""
        room = self.archive.drops.shape[1]
        if len(drops) > room:
            return
        keys = np.zeros(room, np.int64)
        keys[: len(drops)] = drops
        got = engine.evaluate(
            self.packed, order, keys, len(drops), engine.INFEASIBLE, self.traces[0]
        )
        if got[2] < engine.INFEASIBLE:
            used = keys[: len(drops)][self.traces[0].used[: len(drops)]]
            archive.offer(self.archive, got[2], got[4], order, used, len(used))

    def take(self, other: "Search") -> None:
        """Keep what another search of the same problem found and this one lacks."""
        a = other.archive
        for k in range(int(a.filled[0])):
            row, count = a.row[k], a.dropped[a.row[k]]
            archive.offer(self.archive, a.peak[k], a.extra[k], a.order[row], a.drops[row], count)

    def run(self, effort: float) -> None:
        """Spend `effort` million simulated steps, and two fifths more on thinning."""
        work, low = effort * MILLION, self._floor()
        args = (self.packed, self.moves, *self.traces, self.archive)
        spent = 0.0
        for steep in (2.0, 10.0, 50.0):
            spent += anneal.descend(*args, low, 0.07 * work, 1.0, 0.01, steep, self.state)
        thin.fill(self.packed, self.traces[0], self.archive, 0.15 * work, self.state)
        rest, rounds = max(0.1 * work, work - spent), 16 + int(effort) // 2
        anneal.polish(*args, low, rounds, rest, 1.0, 0.01, 50.0, self.state)
        thin.fill(self.packed, self.traces[0], self.archive, 0.25 * work, self.state)

    def _floor(self) -> int:
        """Bytes that no schedule goes below: the largest needs of one step."""
        floor = 0
        always = self.problem.always_live
        for step in self.problem.steps:
            swaps = {new for new, _ in step.inplace}
            touched = (set(step.reads) | set(step.updates) | set(step.writes)) - swaps - always
            kept = {v for v in touched if v not in step.writes or v not in self.problem.optional}
            floor = max(floor, sum(self.problem.nbytes[v] for v in kept) + step.workspace)
        return floor + sum(self.problem.nbytes[v] for v in always)

    def schedules(self) -> list[Schedule]:
        """The schedules of the archive, by increasing peak."""
        found = []
        a = self.archive
        for row in a.row[: int(a.filled[0])]:
            drops = a.drops[row]
            got = engine.evaluate(
                self.packed, a.order[row], drops, a.dropped[row], engine.INFEASIBLE, self.traces[0]
            )
            found.append(tuple(self.traces[0].schedule[: got[0]].tolist()))
        return found


def decisions(problem: Problem, schedule: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Base order and sorted drops that come close to a schedule.

    First runs make the base order; each later run drops what the step writes just before the
    next first run. Recomputation then happens on demand, so the translation may be better than
    the schedule, and rarely worse.
    """
    order: list[int] = []
    pending: set[int] = set()
    seen: set[int] = set()
    keys: set[int] = set()
    count = len(problem.nbytes)
    for k in schedule:
        if k in seen:
            pending.update(problem.steps[k].writes)
            continue
        seen.add(k)
        order.append(k)
        keys.update(k * count + v for v in pending)
        pending = set()
    return np.array(order, np.int64), np.array(sorted(keys), np.int64)
