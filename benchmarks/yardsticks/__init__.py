"""Baselines for the planner: strategies from the literature, and one demand at a time.

Only tests and benchmarks use this; `edgetrain.compiler.remat` does not.
"""

from collections.abc import Iterator

from edgetrain.compiler import remat
from edgetrain.compiler.remat import DEFAULT_EFFORT, Problem, Schedule, Simulation, simulate
from edgetrain.compiler.remat.bound import least_cost
from edgetrain.compiler.remat.chain.ladder import Ladder, expand
from edgetrain.compiler.remat.chain.stages import Chain, chain_of
from edgetrain.compiler.remat.search.flat_problem import flatten
from edgetrain.compiler.remat.store_all import store_all
from edgetrain.errors import BudgetError, UsageError

from .peak import peak_nbytes
from .strategies import log, no_bn, residual_1, residual_2, sqrt

MILP_STEPS = 24


def milp(problem: Problem, effort: int = 32) -> list[Schedule]:
    """The cheapest schedules for five budgets; empty for problems of over `MILP_STEPS` steps.

    `effort`: thousands of branch-and-bound nodes per budget.
    """
    if len(problem.steps) > MILP_STEPS:
        return []
    found = store_all(problem)
    peak = simulate(problem, found[0]).peak_nbytes
    for share in (0.9, 0.75, 0.6, 0.5, 0.4):
        schedule = least_cost(problem, int(peak * share), effort).schedule
        if schedule is None:
            break
        found.append(schedule)
    return found


SOLVERS: dict[str, remat.Solver] = {
    **remat.SOLVERS,
    "sqrt": sqrt,
    "log": log,
    "no_bn": no_bn,
    "residual_1": residual_1,
    "residual_2": residual_2,
    "milp": milp,
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
    """Find the best schedule that a solver has for one demand.

    Args:
      problem: steps and sizes.
      budget: the cheapest schedule whose peak is at most this many bytes.
      max_extra: the lowest peak that recomputes at most this fraction of a forward's FLOPs.
      min_peak: the lowest peak. Without any of the three: the cheapest schedule.
      solver: a name of `SOLVERS`.
      effort: millions of simulated steps.
    Raises:
      BudgetError: every schedule needs more than `budget` bytes.
      UsageError: no such solver, or no schedule within `max_extra`.
    """
    whole = store_all(problem)[0]
    if budget is not None and solver != "store_all":
        if simulate(problem, whole).peak_nbytes <= budget:
            return whole
        stages = chain_of(problem) if solver in ("auto", "chain") else None
        if stages is not None and (solver == "chain" or remat.is_long(stages)):
            found = within(problem, stages, budget)
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
    """Schedules that no other schedule beats in both peak and extra cost.

    Deterministic: depends only on the problem, the solver and the effort.

    Args:
      problem: steps and sizes.
      effort: millions of simulated steps.
      solver: a name of `SOLVERS`.
      points: keep about this many, spread evenly over the logarithm of the peak; None keeps all.
    Returns:
      (schedule, its requirements), by increasing peak; the last one recomputes nothing.
    """
    return remat.measured(problem, schedules(problem, effort, solver), points)


def schedules(problem: Problem, effort: int, solver: str) -> list[Schedule]:
    """All schedules that a solver finds, by increasing peak."""
    if solver not in SOLVERS:
        raise UsageError(f"solver {solver!r}: expected one of {', '.join(SOLVERS)}.")
    found = SOLVERS[solver](problem, effort)
    if not found:
        raise UsageError(f"solver {solver!r}: has no schedule for this graph. Try 'auto'.")
    return found


def within(problem: Problem, stages: Chain, nbytes: int) -> Schedule | None:
    """The cheapest schedule of a chain whose real peak is at most `nbytes`.

    Points that exceed it by more than 5 % according to the table are not tried.
    """
    always = sum(problem.nbytes[v] for v in problem.always_live)
    limit = 1.05 * max(0, nbytes - always) + 1
    ladder = Ladder(problem, stages, limit)
    packed = flatten(problem)

    def fits(schedule: Schedule) -> bool:
        return peak_nbytes(problem, packed, schedule) <= nbytes

    found = ladder.cheapest(fits)
    return found or next(filter(fits, _tightest(problem, stages)), None)


def _tightest(problem: Problem, chain: Chain) -> Iterator[Schedule]:
    """Keep nothing: every backward reruns the forward from the input, n^2 / 2 steps in total.

    First tries to reuse each stage's output left over from the backward above it.
    """
    stages = range(len(chain), 0, -1)
    for reuse in (True, False):
        runs: list[tuple[str, int]] = []
        for j in stages:
            left = reuse and j < len(stages) and not chain.saved[j]
            runs += [("F", k) for k in range(1, j + (not left))]
            runs.append(("B", j))
        yield expand(problem, chain, runs)
