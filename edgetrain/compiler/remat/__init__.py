"""Recomputation: the cheapest schedule that fits a number of bytes.

Every solver proposes schedules; what they need and cost is measured by the referee alone.
"""

from collections.abc import Callable, Sequence

from edgetrain.errors import BudgetError, UsageError

from .chain import Ladder, chain
from .general import general
from .milp import milp
from .problem import Instance, Problem, Schedule, Simulation, Step
from .referee import ScheduleError, simulate
from .relax import relax
from .stages import Chain, chain_of
from .store_all import store_all
from .strategies import log, no_bn, residual_1, residual_2, sqrt

Solver = Callable[[Problem, int], list[Schedule]]

DEFAULT_EFFORT = 32
_LONG_CHAIN = 60


def auto(problem: Problem, effort: int) -> list[Schedule]:
    """The general solver, from what the chain solver finds; that one alone on long plain chains."""
    stages = chain_of(problem)
    if stages is None:
        return general(problem, effort)
    if _long(stages):
        return chain(problem)
    return general(problem, effort, Ladder(problem, stages).some(128 if _plain(stages) else 24))


def _plain(stages: Chain) -> bool:
    """One step a stage: the dynamic program sees the whole problem."""
    return all(len(row) <= 1 for row in (*stages.forward, *stages.backward))


def _long(stages: Chain) -> bool:
    return _plain(stages) and len(stages) > _LONG_CHAIN


SOLVERS: dict[str, Solver] = {
    "store_all": store_all,
    "sqrt": sqrt,
    "log": log,
    "no_bn": no_bn,
    "residual_1": residual_1,
    "residual_2": residual_2,
    "chain": chain,
    "general": general,
    "milp": milp,
    "auto": auto,
}


def solve(
    problem: Problem,
    *,
    budget: int | None = None,
    max_extra: float | None = None,
    min_peak: bool = False,
    solver: str = "auto",
    effort: int = DEFAULT_EFFORT,
) -> Schedule:
    """The best schedule that a solver finds for one demand.

    Args:
      problem: steps and sizes.
      budget: the cheapest schedule whose peak is at most this many bytes.
      max_extra: the lowest peak with at most this fraction of a forward's FLOPs done again.
      min_peak: the lowest peak. Without any of the three: the cheapest schedule.
      solver: a name of `SOLVERS`.
      effort: millions of simulated steps.
    Raises:
      BudgetError: every schedule found needs more than `budget` bytes.
      UsageError: no such solver, or no schedule within `max_extra`.
    """
    whole = store_all(problem)[0]
    if budget is not None and solver != "store_all":
        if simulate(problem, whole).peak_nbytes <= budget:
            return whole
        stages = chain_of(problem) if solver in ("auto", "chain") else None
        if stages is not None and (solver == "chain" or _long(stages)):
            found = Ladder(problem, stages, budget).within(budget)
            if found is not None:
                return found
    points = frontier(problem, effort, solver=solver, points=None)
    if min_peak:
        return points[0][0]
    if max_extra is not None:
        limit = max_extra * problem.forward_flops()
        for schedule, simulation in points:
            if simulation.extra_flops <= limit:
                return schedule
        raise UsageError(f"solver {solver!r}: no schedule recomputes at most {max_extra} forward.")
    fitting = [p for p in points if budget is None or p[1].peak_nbytes <= budget]
    if not fitting:
        least = points[0][1].peak_nbytes
        raise BudgetError(
            f"solver {solver!r}: the smallest schedule needs {least} bytes, budget {budget}. "
            "Allow more bytes, or more effort.",
            least,
        )
    return fitting[-1][0]


def frontier(
    problem: Problem,
    effort: int = DEFAULT_EFFORT,
    *,
    solver: str = "auto",
    points: int | None = 28,
) -> list[tuple[Schedule, Simulation]]:
    """Schedules that no other one found beats in both peak and extra cost.

    Deterministic: depends on the problem, the solver and the effort alone.

    Args:
      problem: steps and sizes.
      effort: millions of simulated steps.
      solver: a name of `SOLVERS`.
      points: keep about this many, spread evenly over the logarithm of the peak; None keeps all.
    Returns:
      (schedule, what it needs), by increasing peak; the last one recomputes nothing.
    """
    return measured(problem, schedules(problem, effort, solver), points)


def schedules(
    problem: Problem, effort: int = DEFAULT_EFFORT, solver: str = "auto"
) -> list[Schedule]:
    """All that a solver finds, by increasing peak; arguments as for `frontier`."""
    if solver not in SOLVERS:
        raise UsageError(f"solver {solver!r}: expected one of {', '.join(SOLVERS)}.")
    found = SOLVERS[solver](problem, effort)
    if not found:
        raise UsageError(f"solver {solver!r}: has no schedule for this graph. Try 'auto'.")
    return found


def measured(
    problem: Problem, found: Sequence[Schedule], points: int | None
) -> list[tuple[Schedule, Simulation]]:
    """About `points` of the schedules found, as `frontier` returns them."""
    if points is not None:
        found = _thinned(found, 3 * points // 2)
    costed = [(s, simulate(problem, s)) for s in found]
    costed.sort(key=lambda item: (item[1].peak_nbytes, item[1].extra_cost))
    front: list[tuple[Schedule, Simulation]] = []
    for item in costed:
        if not front or item[1].extra_cost < front[-1][1].extra_cost:
            front.append(item)
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
    "Problem",
    "Schedule",
    "ScheduleError",
    "Simulation",
    "Solver",
    "Step",
    "auto",
    "frontier",
    "measured",
    "relax",
    "schedules",
    "simulate",
    "solve",
    "store_all",
]
