"""Proves bounds on how far plans are from the optimum, for `--prove`.

For small graphs only; remat/bound.py describes exactly what is proven.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...units import format_bytes
from ..plan.candidates import Plan
from ..remat.bound import least_cost, least_peak


@dataclass(frozen=True, slots=True)
class Proof:
    """Bounds for two plans.

    Attributes:
      steps: steps of one microbatch.
      microbatch, least_nbytes, found_nbytes: of the smallest plan: its microbatch, the least arena
        possible with it, and its arena.
      within_nbytes, least_extra, found_extra: of the chosen plan: its bytes, the least possible
        recomputation within them, and its recomputation, relative to a minibatch without any.
      complete: whether both searches finished; if not, the bounds may be too low.
    """

    steps: int
    microbatch: int
    least_nbytes: int
    found_nbytes: int
    within_nbytes: int
    least_extra: float
    found_extra: float
    complete: bool

    @property
    def gap_nbytes(self) -> float:
        """How much larger the smallest plan is than the bound, as a fraction of the bound."""
        return max(0.0, self.found_nbytes / self.least_nbytes - 1)

    @property
    def gap_time(self) -> float:
        """How much slower the chosen plan is than the bound, as a fraction of the bound."""
        return max(0.0, (1 + self.found_extra) / (1 + self.least_extra) - 1)

    def lines(self) -> list[str]:
        """The bounds as text."""
        often = "" if self.complete else "; the search was stopped early"
        other = self.found_nbytes < self.least_nbytes or self.found_extra < self.least_extra - 1e-4
        better = "; another order is better" if other else ""
        return [
            f"proven for these {self.steps} steps in this order{often}{better}:",
            f"  microbatch {self.microbatch} needs at least {self.least_nbytes:,} bytes "
            f"({format_bytes(self.least_nbytes)}); found {self.found_nbytes:,}, gap "
            f"{100 * self.gap_nbytes:.1f} %",
            f"  in {self.within_nbytes:,} bytes, recomputation costs at least "
            f"{100 * self.least_extra:.1f} % of a minibatch; found "
            f"{100 * self.found_extra:.1f} %, gap "
            f"{100 * self.gap_time:.1f} %",
        ]


def prove(front: Sequence[Plan], chosen: Plan, budget: int | None) -> Proof:
    """Compute bounds for the smallest plan's bytes and the chosen plan's time.

    Args:
      front: all plans, by increasing size.
      budget: memory limit; None: the chosen plan's size.
    Raises:
      UsageError: the graph is too large, or scipy is missing.
    """
    smallest = front[0]
    least = least_peak(smallest.candidate.train.problem)
    problem = chosen.candidate.train.problem
    within = chosen.arena_nbytes if budget is None else budget
    cost = least_cost(problem, within - chosen.candidate.persistent_nbytes)
    once = sum(step.cost for step in problem.steps) or 1.0
    return Proof(
        len(problem.steps),
        smallest.candidate.microbatch,
        smallest.candidate.arena_nbytes(int(least.bound)),
        smallest.arena_nbytes,
        within,
        cost.bound / once,
        chosen.simulation.extra_cost / once,
        least.complete and cost.complete,
    )
