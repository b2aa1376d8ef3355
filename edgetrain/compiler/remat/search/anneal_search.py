"""General solver for any graph: drops annealed on the real peak, down a ladder of budgets.

The search keeps a front of decisions. It fills the front from seeds, anneals down the budgets from
the front's points, takes drops back and anneals again: from the front, and now and then from the
seeds, because a front rarely changes the way its points recompute. Each move simulates a whole
schedule, which takes some microseconds, so a move costs about n in a problem of n steps; `effort`
counts exactly that. Every round doubles the effort spent so far, so a larger effort continues from
the end of a smaller one. Memory is that of the front: up to 256 orders and lists of drops.

Known inefficiency: one value is dropped at a time, so multi-level recomputation is found step by
step. Seeds that drop idle values find it at once, and so do the chain solver's if the graph is a
chain of blocks.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ..problem import Problem, Schedule
from .anneal import (
    DESCENT_PARTS,
    DESCENT_WORK,
    FAILURES,
    GOLDEN,
    LADDER,
    REACHABLE,
    Temper,
    anneal,
    new_walk,
)
from .archive import Archive, find, kept, new_archive, offer
from .decisions import decisions
from .drop_idle import drop_idle
from .evaluate import INFEASIBLE, evaluate, new_trace
from .flat_problem import FlatProblem, flatten
from .idle_times import IdleTimes, crossing, cuts, idle_values
from .moves import moves
from .prune_drops import prune_between
from .throws import throws

MILLION = 1_000_000
# Chosen from 14 seeds compared on eight problems; no figure in docs/ is an average over seeds.
_SEED = 2463534242
_OTHER_SEED = 7919  # added to the seed for the second search
LONGEST = 12  # longest schedule, per step of the problem; next: most drops, per step
MOST_DROPS = 6
POINTS, LONG_POINTS, LONG = 256, 96, 2500  # points of an archive; the same above LONG steps
SEGMENTS = (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 28, 40, 60)
DENSITIES = 16
FIRST, FIRST_EACH = 2.0, 0.015  # effort of the first round: at most, and per step
LEAST = 8.0  # effort always spent: on a small graph, what the first rounds find is luck
COOL = 0.01
STEEP = (2.0, 10.0, 50.0)  # weights of bytes above the budget, one descent for each
# Shares of a round's work: each descent, pruning after all of them, pruning at the end; and the
# least share for polishing.
DESCENT, FIRST_PRUNE, LAST_PRUNE, LEAST_POLISH = 0.07, 0.15, 0.25, 0.1
# Polishing: how often it aims at a wide step of the front, how often it starts from a seed, how
# much longer it then runs, and from how many seeds around its budget; temperatures.
WIDE, FROM_SEEDS, LONGER, AROUND = 0.5, 0.2, 4, 24
HOT, LEAST_WARM, WARMER = 10.0, 0.3, 30.0


class Level(NamedTuple):
    """How far a search goes.

    Attributes:
      effort: millions of simulated steps at most, in total over all levels so far.
      gain: after `LEAST`, the search ends with the first round that neither shortens the step at
        any peak by this fraction nor lowers the least peak by it; 0 spends all effort.
    """

    effort: float
    gain: float = 0.0


def anneal_search(
    problem: Problem, effort: float, seeds: Sequence[Schedule] = (), enough: int = 0
) -> list[Schedule]:
    """Like `anneal_levels`, for one level that spends all its effort."""
    return anneal_levels(problem, [Level(effort)], [seeds], enough)[0]


def anneal_levels(
    problem: Problem,
    levels: Sequence[Level],
    seeds: Sequence[Sequence[Schedule]],
    enough: int = 0,
) -> list[list[Schedule]]:
    """Non-dominated schedules of a problem after each level, by increasing peak.

    Two searches with separate random numbers run side by side and exchange their points after each
    round, so the result does not depend on the number of processors. The second one also starts
    from seeds that drop idle values: it covers tight budgets, the first one ample ones. A level
    continues from the end of the one before, and each round doubles the work.

    Args:
      problem: any.
      levels: of rising effort, at most a million simulated steps per step of the problem; the
        result depends only on effort, never on time.
      seeds: for each level, schedules to start from besides the one that recomputes nothing.
      enough: a peak below this many bytes has no further benefit.
    """
    first = Search(problem, enough=enough)
    first.offer(tuple(range(len(problem.steps))))
    if first.archive.peak[0] <= first.low:
        return [first.schedules()] * len(levels)
    first.seed()
    searches = [first, Search(problem, first)]
    spent, gained, result = 0.0, np.inf, []
    for level, known in zip(levels, seeds, strict=True):
        for seed in known:
            first.offer(seed)
        searches[1].take(first)
        if not spent:
            searches[1].drop_idle()
        most = min(level.effort, len(problem.steps))
        while spent < most and (spent < LEAST or gained >= level.gain):
            before = first.front()
            work = min(spent or first_round(problem), most - spent)
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda search, work=work: search.run(work / 2), searches))
            searches[0].take(searches[1])
            searches[1].take(searches[0])
            spent, gained = spent + work, first.gained(before)
        result.append(first.schedules())
    return result


def first_round(problem: Problem) -> float:
    """Effort of the first round."""
    return min(FIRST, FIRST_EACH * len(problem.steps))


class Search:
    """The archive of one problem and the compiled loops that fill it."""

    def __init__(self, problem: Problem, like: "Search | None" = None, enough: int = 0) -> None:
        self.problem = problem
        self.low: int = like.low if like else max(enough, problem.lower_bound())
        self.flat: FlatProblem = like.flat if like else flatten(problem)
        steps = len(problem.steps)
        longest, drops = LONGEST * steps + 64, MOST_DROPS * steps + 64
        self.traces = [new_trace(self.flat, longest) for _ in range(2)]
        self.archive = new_archive(POINTS if steps <= LONG else LONG_POINTS, drops, steps)
        self.walk = new_walk(steps, drops, longest)
        self.idle: IdleTimes = like.idle if like else idle_values(problem, self.flat)
        self.moves = moves(self.idle, len(problem.nbytes))
        self.state = np.array([_SEED + (_OTHER_SEED if like else 0)], np.uint64)
        self.once = float(self.flat.cost.sum())
        self.seeds: Archive | None = None

    def offer(self, schedule: Schedule) -> None:
        """Translate a schedule into decisions and keep it if nothing dominates it."""
        self.offer_drops(*decisions(self.problem, schedule))

    def seed(self) -> None:
        """Offer cuts into various numbers of segments, with and without keeping costly values."""
        idle, keys = self.idle, self.moves.key
        order = np.arange(len(self.problem.steps))
        density = np.sort(self.moves.density)
        limits = [density[int(q * (len(density) - 1))] for q in np.linspace(0.05, 1, DENSITIES)]
        offered: set[bytes] = set()
        for parts in SEGMENTS:
            held = np.zeros(len(idle.value), np.bool_)
            for position in cuts(self.problem, idle, parts):
                held |= crossing(idle, position)
            for limit in limits:
                drops = np.sort(keys[~held & (self.moves.density <= limit)])
                if drops.tobytes() not in offered:
                    offered.add(drops.tobytes())
                    self.offer_drops(order, drops)

    def drop_idle(self) -> None:
        """Offer the seeds that drop idle values."""
        order = np.arange(len(self.problem.steps))
        most = self.archive.drops.shape[1]
        for peak, extra, drops in drop_idle(self.flat, most, self.traces[0]):
            offer(self.archive, peak, extra, order, drops, len(drops))

    def offer_drops(self, order: np.ndarray, drops: np.ndarray) -> None:
        """Keep these decisions if nothing dominates them."""
        if len(drops) > self.archive.drops.shape[1]:
            return
        got = evaluate(self.flat, order, drops, len(drops), INFEASIBLE, self.traces[0])
        if got.peak < INFEASIBLE:
            used = drops[self.traces[0].used[: len(drops)]]
            offer(self.archive, got.peak, got.extra, order, used, len(used))

    def take(self, other: "Search") -> None:
        """Keep points that another search of the same problem found and this one lacks."""
        a = other.archive
        for k in range(int(a.filled[0])):
            row, count = a.row[k], a.dropped[a.row[k]]
            offer(self.archive, a.peak[k], a.extra[k], a.order[row], a.drops[row], count)

    def run(self, effort: float) -> None:
        """Spend `effort` million simulated steps, and two fifths more on pruning.

        Runs three descents down the budgets, pruning, polishing of the results, pruning. The
        archive before the first run provides the seeds of all runs.
        """
        work, low = effort * MILLION, self.low
        self.seeds = self.seeds or kept(self.archive)
        scratch = (self.flat, self.traces[0], self.archive, self.walk)
        spent = sum(self.descend(low, DESCENT * work, steep) for steep in STEEP)
        prune_between(*scratch, FIRST_PRUNE * work, self.state)
        rest, count = max(LEAST_POLISH * work, work - spent), 16 + int(effort) // 2
        self.polish(low, count, rest, STEEP[-1])
        prune_between(*scratch, LAST_PRUNE * work, self.state)

    def descend(self, low: int, work: float, steep: float) -> float:
        """Anneal for falling budgets, from the peak without recomputation down to `low` bytes.

        Args:
          work: steps to evaluate, more or less.  steep: weight of bytes above the budget.
        Returns:
          Steps evaluated.
        """
        peaks = self.archive.peak
        budget = float(peaks[self.archive.filled[0] - 1])
        done, failed = 0.0, 0
        while budget > low and failed < FAILURES and done < DESCENT_WORK * work:
            start = max(find(self.archive, int(budget * REACHABLE)), 0)
            temper = Temper(1.0, COOL, steep)
            done += self._anneal(self.archive, start, int(budget), work // DESCENT_PARTS, temper)
            failed = failed + 1 if peaks[0] > budget else 0
            budget *= LADDER
        return done

    def polish(self, low: int, count: int, work: float, steep: float) -> None:
        """Anneal again for budgets spread over the archive, each from its best point so far.

        Every fourth budget is below the least peak found. Some of the others aim at wide steps of
        the front, and some start from a seed that needs more or less than the budget.

        Args:
          work: steps to evaluate, more or less, in `count` parts.
        """
        part, k = work / count, 0
        while work > 0:
            below = k % 4 == 3
            budget = self._below() if below else self._aim(k)
            budget, k = max(budget, low), k + 1
            if self.seeds is not None and self._throw() < FROM_SEEDS:
                start, weight = self._seed_around(self.seeds, budget, steep)
                temper = Temper(HOT ** self._throw(), COOL, weight)
                self._anneal(self.seeds, start, int(budget), LONGER * part, temper)
                work -= LONGER * part
                continue
            start = max(0, find(self.archive, int(budget * (1.0 + 0.5 * self._throw() ** 3))))
            warm = LEAST_WARM * WARMER ** self._throw()
            weight = steep ** self._throw() * 0.7
            if below:
                weight = steep * 4.0 ** (self._throw() - 0.5)
            self._anneal(self.archive, start, int(budget), part, Temper(warm, COOL, weight))
            work -= part

    def _throw(self) -> float:
        return throws(self.state, 1)[0]

    def _below(self) -> float:
        """A budget below the least peak."""
        return self.archive.peak[0] * (0.9 + 0.09 * self._throw())

    def _aim(self, k: int) -> float:
        """The k-th budget within the front: inside one of its wide steps, or spread evenly."""
        count = int(self.archive.filled[0])
        peaks, extra = self.archive.peak[:count], self.archive.extra[:count]
        if count > 1 and self._throw() < WIDE:
            widths = np.diff(np.log(np.maximum(peaks, 1))) * -np.diff(extra)
            index = int(np.argmax(widths * throws(self.state, count - 1)))
            return peaks[index] + (peaks[index + 1] - peaks[index]) * self._throw() ** 2
        top, bottom = np.log(peaks[-1]), np.log(peaks[0])
        share = ((k * GOLDEN) % 1.0) ** 1.3
        return np.exp(bottom + (top - bottom) * share) * (0.97 if share < 0.1 else 1.0)

    def _seed_around(self, seeds: Archive, budget: float, steep: float) -> tuple[int, float]:
        """A seed with more or fewer bytes than the budget, and the weight of bytes above it.

        A seed with more bytes recomputes little, so exceeding the budget must weigh as much as the
        recomputation that fits the budget.
        """
        index = find(seeds, int(budget)) + int((self._throw() - 0.5) * AROUND)
        index = max(0, min(int(seeds.filled[0]) - 1, index))
        here = seeds.extra[index]
        known = self.archive.extra[max(0, find(self.archive, int(budget)))]
        return index, steep * (max(known, here) + 0.02) / (here + 0.02)

    def _anneal(
        self, points: Archive, start: int, budget: int, work: float, temper: Temper
    ) -> float:
        scratch = (*self.traces, self.archive, self.walk, points)
        return anneal(self.flat, self.moves, *scratch, start, budget, work, temper, self.state)

    def front(self) -> tuple[np.ndarray, np.ndarray]:
        """Peaks of the archive, rising, and the duration of a step at each, in forward passes."""
        count = int(self.archive.filled[0])
        return self.archive.peak[:count].copy(), self.archive.extra[:count] + self.once

    def gained(self, before: tuple[np.ndarray, np.ndarray]) -> float:
        """The largest fraction by which the step at a peak, or the least peak, shrank."""
        (old_peaks, old), (peaks, now) = before, self.front()
        places = np.searchsorted(old_peaks, peaks, "right") - 1
        shorter = 1 - now[places >= 0] / old[places[places >= 0]]
        return float(max(shorter.max(initial=0.0), 1 - peaks[0] / old_peaks[0]))

    def schedules(self) -> list[Schedule]:
        """The schedules of the archive, by increasing peak."""
        result = []
        a = self.archive
        for row in a.row[: int(a.filled[0])]:
            drops = a.drops[row]
            got = evaluate(
                self.flat, a.order[row], drops, a.dropped[row], INFEASIBLE, self.traces[0]
            )
            result.append(tuple(self.traces[0].schedule[: got.length].tolist()))
        return result
