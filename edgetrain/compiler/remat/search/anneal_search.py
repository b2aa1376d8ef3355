"""Any graph: drops on the real peak, annealed down a ladder of budgets.

It keeps a front of decisions: it fills it from seeds, walks down the budgets from its points,
takes drops back between them and walks again from what it has. Each turn of a walk runs a whole
schedule on paper, some microseconds, so that a problem of n steps costs about n for each turn;
`effort` counts just that. Memory is that of the front: up to 256 orders and lists of drops.

Known inefficiency: one value is dropped at a time, so schedules of several levels are found
step by step; seeds that drop what idles give them at once, and the chain solver's where the graph
is a chain of blocks.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

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
from .archive import find, new_archive, offer
from .decisions import decisions
from .drop_idle import drop_idle
from .evaluate import INFEASIBLE, evaluate, new_trace
from .flat_problem import FlatProblem, flatten
from .idle_times import IdleTimes, crossing, cuts, idle_values
from .moves import moves
from .prune_drops import prune_between
from .throws import throws

MILLION = 1_000_000
_SEED = 88172645463325252
_OTHER_SEED = 7919  # further on: that of the second search
LONGEST = 12  # steps of a schedule, and drops of its decisions, for each step of the problem
MOST_DROPS = 6
POINTS, LONG_POINTS, LONG = 256, 96, 2500  # points of an archive; those from so many steps on
SEGMENTS = (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 28, 40, 60)
DENSITIES = 16
EQUAL = (0.5, 0.5)  # shares of the rounds in the effort
IDLE_ROUNDS, SHORT_ROUNDS, SHORT = 2, 3, 100  # that gain too little end a search; a short one
GROWING = (0.04, 0.06, 0.1, 0.15, 0.25, 0.4)
COOL = 0.01
STEEP = (2.0, 10.0, 50.0)  # weights of bytes above the budget, one descent for each
# Shares of a round's work: each descent, pruning after all of them, pruning at the end; and what
# is left for polishing at least.
DESCENT, FIRST_PRUNE, LAST_PRUNE, LEAST_POLISH = 0.07, 0.15, 0.25, 0.1


def anneal_search(
    problem: Problem,
    effort: float,
    seeds: Iterable[Schedule] = (),
    enough: int = 0,
    gain: float = 0.0,
) -> list[Schedule]:
    """Non-dominated schedules of a problem, by increasing peak.

    Two searches with random numbers of their own run side by side and exchange what they found
    after each round, so that the result does not depend on the processors there are. The second
    one starts from seeds that drop what idles too: it looks after tight budgets, the first one
    after ample ones.

    Args:
      problem: any.
      effort: millions of simulated steps, at most one for each step of the problem; the result
        depends on it and never on time.
      seeds: schedules to start from besides the one that recomputes nothing.
      enough: bytes below which no peak is of use.
      gain: end after two rounds (three of a short problem) that improve the front by less than
        this part of it each; 0 spends all effort, in rounds of equal work, others in rounds that
        grow.
    """
    first = Search(problem, enough=enough)
    first.offer(tuple(range(len(problem.steps))))
    if first.archive.peak[0] <= first.low:
        return first.schedules()
    first.seed()
    for seed in seeds:
        first.offer(seed)
    searches = [first, Search(problem, first)]
    searches[1].take(first)
    searches[1].drop_idle()
    before, idle_rounds = searches[1].area(), 0
    most_idle = SHORT_ROUNDS if len(problem.steps) <= SHORT else IDLE_ROUNDS
    for share in GROWING if gain else EQUAL:
        work = share * min(effort, len(problem.steps)) / 2
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda search, work=work: search.run(work), searches))
        searches[0].take(searches[1])
        searches[1].take(searches[0])
        after = first.area()
        idle_rounds = idle_rounds + 1 if before - after <= gain * before else 0
        if gain and idle_rounds == most_idle:
            break
        before = after
    return first.schedules()


class Search:
    """The archive of one problem and the compiled loops that fill it."""

    def __init__(self, problem: Problem, like: "Search | None" = None, enough: int = 0) -> None:
        self.problem = problem
        self.low: int = like.low if like else max(enough, _floor(problem))
        self.flat: FlatProblem = like.flat if like else flatten(problem)
        steps = len(problem.steps)
        longest, drops = LONGEST * steps + 64, MOST_DROPS * steps + 64
        self.traces = [new_trace(self.flat, longest) for _ in range(2)]
        self.archive = new_archive(POINTS if steps <= LONG else LONG_POINTS, drops, steps)
        self.walk = new_walk(steps, drops, longest)
        self.idle: IdleTimes = like.idle if like else idle_values(problem, self.flat)
        self.moves = moves(self.idle, len(problem.nbytes))
        self.state = np.array([_SEED + (_OTHER_SEED if like else 0)], np.uint64)

    def offer(self, schedule: Schedule) -> None:
        """Translate a schedule into decisions and keep it where nothing dominates it."""
        self.offer_drops(*decisions(self.problem, schedule))

    def seed(self) -> None:
        """Offer cuts into several numbers of segments, with the values dear to make kept or not."""
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
        """Offer the seeds that drop what idles."""
        order = np.arange(len(self.problem.steps))
        most = self.archive.drops.shape[1]
        for peak, extra, drops in drop_idle(self.flat, most, self.traces[0]):
            offer(self.archive, peak, extra, order, drops, len(drops))

    def offer_drops(self, order: np.ndarray, drops: np.ndarray) -> None:
        """Keep these decisions where nothing dominates them."""
        if len(drops) > self.archive.drops.shape[1]:
            return
        got = evaluate(self.flat, order, drops, len(drops), INFEASIBLE, self.traces[0])
        if got.peak < INFEASIBLE:
            used = drops[self.traces[0].used[: len(drops)]]
            offer(self.archive, got.peak, got.extra, order, used, len(used))

    def take(self, other: "Search") -> None:
        """Keep what another search of the same problem found and this one lacks."""
        a = other.archive
        for k in range(int(a.filled[0])):
            row, count = a.row[k], a.dropped[a.row[k]]
            offer(self.archive, a.peak[k], a.extra[k], a.order[row], a.drops[row], count)

    def run(self, effort: float) -> None:
        """Spend `effort` million simulated steps, and two fifths more on pruning.

        Three descents down the budgets, pruning, polishing of what was found, pruning.
        """
        work, low = effort * MILLION, self.low
        scratch = (self.flat, self.traces[0], self.archive, self.walk)
        spent = sum(self.descend(low, DESCENT * work, steep) for steep in STEEP)
        prune_between(*scratch, FIRST_PRUNE * work, self.state)
        rest, rounds = max(LEAST_POLISH * work, work - spent), 16 + int(effort) // 2
        self.polish(low, rounds, rest, STEEP[-1])
        prune_between(*scratch, LAST_PRUNE * work, self.state)

    def descend(self, low: int, work: float, steep: float) -> float:
        """Anneal for falling budgets from the regular peak down to `low` bytes.

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
            done += self._anneal(start, int(budget), work // DESCENT_PARTS, temper)
            failed = failed + 1 if peaks[0] > budget else 0
            budget *= LADDER
        return done

    def polish(self, low: int, rounds: int, work: float, steep: float) -> None:
        """Anneal again for budgets spread over the archive, each from its best point so far.

        Every fourth round aims below the least peak found.
        """
        peaks, state = self.archive.peak, self.state
        for k in range(rounds):
            below = k % 4 == 3
            top, bottom = np.log(peaks[self.archive.filled[0] - 1]), np.log(peaks[0])
            share = ((k * GOLDEN) % 1.0) ** 1.3
            budget = np.exp(bottom + (top - bottom) * share) * (0.97 if share < 0.1 else 1.0)
            if below:
                budget = peaks[0] * (0.9 + 0.09 * throws(state, 1)[0])
            budget = max(budget, low)
            start = max(0, find(self.archive, int(budget * (1.0 + 0.5 * throws(state, 1)[0] ** 3))))
            warm = 0.3 * 30.0 ** throws(state, 1)[0]
            weight = steep ** throws(state, 1)[0] * 0.7
            if below:
                weight = steep * 4.0 ** (throws(state, 1)[0] - 0.5)
            self._anneal(start, int(budget), work // rounds, Temper(warm, COOL, weight))

    def _anneal(self, start: int, budget: int, work: float, temper: Temper) -> float:
        scratch = (*self.traces, self.archive, self.walk)
        return anneal(self.flat, self.moves, *scratch, start, budget, work, temper, self.state)

    def area(self) -> float:
        """Extra cost over the logarithm of all budgets of use: what the search makes small."""
        count = int(self.archive.filled[0])
        extra = self.archive.extra[: count - 1]
        budgets = np.log(np.maximum(self.archive.peak[:count], max(self.low, 1)))
        unreached = (budgets[0] - np.log(max(self.low, 1))) * (1 + self.archive.extra[0])
        return float((np.diff(budgets) * extra).sum() + unreached)

    def schedules(self) -> list[Schedule]:
        """The schedules of the archive, by increasing peak."""
        found = []
        a = self.archive
        for row in a.row[: int(a.filled[0])]:
            drops = a.drops[row]
            got = evaluate(
                self.flat, a.order[row], drops, a.dropped[row], INFEASIBLE, self.traces[0]
            )
            found.append(tuple(self.traces[0].schedule[: got.length].tolist()))
        return found


def _floor(problem: Problem) -> int:
    """Bytes that no schedule goes below: the largest needs of one step."""
    floor = 0
    always = problem.always_live
    for step in problem.steps:
        swaps = {new for new, _ in step.inplace}
        touched = (set(step.reads) | set(step.updates) | set(step.writes)) - swaps - always
        kept = {v for v in touched if v not in step.writes or v not in problem.optional}
        floor = max(floor, sum(problem.nbytes[v] for v in kept) + step.workspace)
    return floor + sum(problem.nbytes[v] for v in always)
