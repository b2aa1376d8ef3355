"""Recomputation: finds the cheapest schedule that fits a memory limit.

Solvers propose schedules. Their memory and cost are measured independently (replay.py), and the
referee checks the chosen one.
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
    """The general solver, seeded by the chain solver; on long plain chains, only the latter."""
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
    """The schedules that solver 'auto' finds after each level.

    Args:
      enough: a peak below this many bytes has no further benefit.
      seeds: schedules already known, per level; None: use the chain solver's, if it applies.
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
    """Schedules of the dynamic program from which a search starts.

    If the program sees the whole problem, these are its best schedules. Otherwise they leave some
    bytes unused, which gives searches more freedom.
    """
    plain = _plain(stages)
    return Ladder(problem, stages, frees=plain).some(128 if plain else 24)


def _plain(stages: Chain) -> bool:
    """Whether each stage has at most one step, so the dynamic program sees the whole problem."""
    return all(len(row) <= 1 for row in (*stages.forward, *stages.backward))


def is_long(stages: Chain) -> bool:
    """Whether the chain is so long that only the dynamic program runs."""
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
    """All schedules that a solver finds, by increasing peak.

    Args:
      problem: steps and sizes.
      effort: millions of simulated steps.
      solver: a key of `SOLVERS`.
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
    """The schedules that no other schedule beats in both peak and extra cost.

    Args:
      points: keep about this many, spread evenly over the logarithm of the peak; None keeps all.
      replay: of the problem, if one already exists.
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
    """At most `count` schedules, evenly spaced with both ends: measuring each takes long."""
    last = min(len(found), count) - 1
    return [found[k * (len(found) - 1) // max(last, 1)] for k in range(last + 1)]


def _spread(
    front: Sequence[tuple[Schedule, Simulation]], points: int
) -> list[tuple[Schedule, Simulation]]:
    """About `points` of the front, including both ends, with evenly spaced ratios of peaks."""
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
