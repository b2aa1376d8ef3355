"""Recomputation: the cheapest schedule that fits a number of bytes.

Every solver proposes schedules; their memory and cost are measured independently (replay.py), and
the referee checks the chosen one.
"""

from collections.abc import Callable, Sequence

from edgetrain.errors import UsageError

from ..pareto import undominated
from .chain.ladder import Ladder, chain_ladder
from .chain.stages import Chain, chain_of
from .problem import Instance, Problem, Schedule, Simulation, Step
from .referee import ScheduleError, simulate
from .replay import Replay
from .search import Level, anneal_levels, anneal_search, shorten_lifetimes
from .store_all import store_all

Solver = Callable[[Problem, int], list[Schedule]]

DEFAULT_EFFORT = 32
_LONG_CHAIN = 60


def auto(problem: Problem, effort: int) -> list[Schedule]:
    """The general solver, from what the chain solver finds; that one alone on long plain chains."""
    stages = chain_of(problem)
    if stages is None:
        return anneal_search(problem, effort)
    if is_long(stages) or problem.cuts:
        return chain_ladder(problem)
    return anneal_search(problem, effort, _seeds(problem, stages))


def schedules_of_use(
    problem: Problem,
    levels: Sequence[Level],
    enough: int,
    seeds: Sequence[Sequence[Schedule]] | None = None,
) -> list[list[Schedule]]:
    """The schedules of solver 'auto' after each level.

    Args:
      enough: bytes below which a lower peak is of no use.
      seeds: for each level, schedules that are already known; None: none.
    """
    regular = store_all(problem)
    if simulate(problem, regular[0]).peak_nbytes <= enough:
        return [regular] * len(levels)
    stages = chain_of(problem)
    if stages is not None and (is_long(stages) or problem.cuts):
        return [chain_ladder(problem)] * len(levels)
    if seeds is None:
        first = [] if stages is None else _seeds(problem, stages)
        seeds = [first, *([()] * (len(levels) - 1))]
    return anneal_levels(problem, levels, seeds, enough)


def _seeds(problem: Problem, stages: Chain) -> list[Schedule]:
    """Schedules of the dynamic program that a search begins with.

    Where it sees the whole problem they are its best; else those that leave bytes unused, which
    searches come further from.
    """
    plain = _plain(stages)
    return Ladder(problem, stages, frees=plain).some(128 if plain else 24)


def _plain(stages: Chain) -> bool:
    """One step a stage: the dynamic program sees the whole problem."""
    return all(len(row) <= 1 for row in (*stages.forward, *stages.backward))


def is_long(stages: Chain) -> bool:
    """Whether the dynamic program alone is searched."""
    return _plain(stages) and len(stages) > _LONG_CHAIN


SOLVERS: dict[str, Solver] = {
    "store_all": store_all,
    "chain": chain_ladder,
    "general": anneal_search,
    "auto": auto,
}


def schedules(
    problem: Problem, effort: int = DEFAULT_EFFORT, solver: str = "auto"
) -> list[Schedule]:
    """All that a solver finds, by increasing peak.

    Args:
      problem: steps and sizes.
      effort: millions of simulated steps.
      solver: a name of `SOLVERS`.
    """
    if solver not in SOLVERS:
        raise UsageError(f"solver {solver!r}: expected one of {', '.join(SOLVERS)}.")
    result = SOLVERS[solver](problem, effort)
    if not result:
        raise UsageError(f"solver {solver!r}: it found no schedule for this graph. Try 'auto'.")
    return result


def measured(
    problem: Problem,
    found: Sequence[Schedule],
    points: int | None,
    replay: Replay | None = None,
) -> list[tuple[Schedule, Simulation]]:
    """The schedules that no other one beats in both peak and extra cost.

    Args:
      points: keep about this many, spread evenly over the logarithm of the peak; None keeps all.
      replay: of the problem, if there is one already.
    Returns:
      (schedule, its simulation), by increasing peak; the last one recomputes nothing.
    """
    if points is not None:
        found = _thinned(found, 3 * points // 2)
    replay = replay or Replay(problem)
    costed = [(schedule, replay(schedule)) for schedule in found]
    front = undominated(costed, lambda item: (item[1].peak_nbytes, item[1].extra_cost))
    return front if points is None else _spread(front, points)


def _thinned(found: Sequence[Schedule], count: int) -> list[Schedule]:
    """At most `count`, evenly by place, both ends among them: to measure one takes long."""
    last = min(len(found), count) - 1
    return [found[k * (len(found) - 1) // max(last, 1)] for k in range(last + 1)]


def _spread(
    front: Sequence[tuple[Schedule, Simulation]], points: int
) -> list[tuple[Schedule, Simulation]]:
    """About `points` of the front, both ends among them, evenly in the ratio of their peaks."""
    if len(front) <= points:
        return list(front)
    low, high = front[0][1].peak_nbytes, front[-1][1].peak_nbytes
    ratio = (high / max(low, 1)) ** (1 / (points - 1))
    chosen, next_peak = [front[0]], low * ratio
    for here, after in zip(front[1:-1], front[2:], strict=True):
        # The cheapest point below each rung of the ladder.
        if after[1].peak_nbytes > next_peak:
            chosen.append(here)
            while next_peak < after[1].peak_nbytes:
                next_peak *= ratio
    return [*chosen, front[-1]]


__all__ = [
    "DEFAULT_EFFORT",
    "SOLVERS",
    "Instance",
    "Level",
    "Problem",
    "Replay",
    "Schedule",
    "ScheduleError",
    "Simulation",
    "Solver",
    "Step",
    "auto",
    "measured",
    "schedules",
    "schedules_of_use",
    "shorten_lifetimes",
    "simulate",
    "store_all",
]
