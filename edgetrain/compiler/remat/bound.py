"""Proven bounds of small problems by mixed integer programming, and schedules that reach them.

Stage t ends with step t of the order; in each stage, any earlier step may run once more. Linear
inequalities keep every value in memory until it is read, and count bytes at every step of every
stage.

Source: Jain et al. 2020, Checkmate (with exact frees and in-place reuse of bytes). Known limits: a
bound holds for schedules in the problem's own order that make a value at most once between two of
its steps. The program is cubic in the steps, so problems above `MOST_STEPS` are not tried.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from edgetrain.errors import UsageError

from .problem import Problem, Schedule
from .referee import simulate
from .store_all import store_all

MOST_STEPS = 40
EFFORT = 8
_ROOM = 1e-6  # relative error of a bound that the solver's tolerances allow


class Proven(NamedTuple):
    """A proven bound of a quantity to minimize.

    Attributes:
      bound: no schedule gets below it.
      schedule: the best one found, or None.
      complete: whether the search finished, which makes the schedule optimal.
    """

    bound: float
    schedule: Schedule | None
    complete: bool


def least_cost(problem: Problem, budget: int, effort: int = EFFORT) -> Proven:
    """The least extra cost of schedules whose peak is at most `budget` bytes.

    Args:
      effort: thousands of branch-and-bound nodes.
    Returns:
      The bound in the unit of the steps' costs; infinite if no schedule fits.
    Raises:
      UsageError: scipy is missing, or the problem is too large.
    """
    model = _Model(problem)
    model.limit(budget)
    total = sum(step.cost for step in problem.steps) or 1.0
    solution = _solved(problem, model, np.array(model.cost) / total, effort)
    return solution._replace(bound=max(0.0, solution.bound - _ROOM) * total)


def least_peak(problem: Problem, effort: int = EFFORT) -> Proven:
    """The least peak in bytes, at any recomputation cost; arguments as for `least_cost`."""
    model = _Model(problem)
    objective = np.zeros(len(model.cost))
    objective[model.peak()] = 1.0
    solution = _solved(problem, model, objective, effort)
    sizes = [*problem.nbytes, *(step.workspace for step in problem.steps)]
    unit = math.gcd(*sizes) or 1
    lowest = max(0.0, solution.bound - _ROOM) * model.unit
    return solution._replace(bound=math.ceil(lowest / unit) * unit)


def _solved(problem: Problem, model: "_Model", objective: np.ndarray, effort: int) -> Proven:
    if len(problem.steps) > MOST_STEPS:
        raise UsageError(
            f"prove: a microbatch has {len(problem.steps)} steps; expected at most {MOST_STEPS}. "
            "Leave --prove out."
        )
    try:
        from scipy.optimize import Bounds, LinearConstraint
        from scipy.optimize import milp as solve_program
        from scipy.sparse import csr_array
    except ModuleNotFoundError as error:
        raise UsageError(
            "prove: scipy is not installed. Run: pip install scipy, or leave --prove out."
        ) from error
    rows, columns, values, low = model.matrix()
    matrix = csr_array((values, (rows, columns)), shape=(len(low), len(model.cost)))
    result: Any = solve_program(
        objective,
        constraints=LinearConstraint(matrix, lb=np.array(low)),
        bounds=Bounds(np.array(model.lower), np.array(model.upper)),
        integrality=np.array(model.whole),
        options={"node_limit": effort * 1000},
    )
    if result.status == 2:
        return Proven(math.inf, None, True)
    bound = 0.0 if result.mip_dual_bound is None else float(result.mip_dual_bound)
    schedule = None if result.x is None else model.schedule(result.x)
    return Proven(bound, schedule, result.status == 0)


class _Model:
    """Variables by name, and inequalities `sum of coefficient * variable >= low`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # Bytes are counted in this unit, so that every coefficient is about 1.
        self.unit = float(max(1, simulate(problem, store_all(problem)[0]).peak_nbytes))
        self.index: dict[tuple, int] = {}
        self.cost: list[float] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.whole: list[int] = []
        self.rows: list[tuple[list[tuple[int, float]], float]] = []
        self.makers: dict[int, list[int]] = {}
        self.readers: dict[int, list[int]] = {}
        self._relations()
        self._stages()
        self._memory()

    def _relations(self) -> None:
        fixed = self.problem.always_live
        for step in self.problem.steps:
            for v in (*step.writes, *step.updates):
                if v in self.makers and v in step.updates:
                    self.readers.setdefault(v, []).append(step.id)
                self.makers.setdefault(v, []).append(step.id)
            for v in step.reads:
                if v not in fixed and step.id not in self.readers.get(v, ()):
                    self.readers.setdefault(v, []).append(step.id)
        self.values = [v for v in self.makers if v not in fixed]

    def run(self, t: int, s: int) -> int:
        """Variable: step s runs in stage t."""
        step = self.problem.steps[s]
        free = s < t and step.recomputable
        return self._variable(("run", t, s), step.cost * free, s == t, s == t or free, True)

    def held(self, t: int, v: int) -> int:
        """Variable: value v is in memory when stage t begins."""
        kept = v in self.problem.kept and self.makers[v][0] < t
        possible = self.makers[v][0] < t
        return self._variable(("held", t, v), 0.0, kept, possible, True)

    def present(self, t: int, s: int, v: int) -> int:
        """Variable: value v occupies memory at step s of stage t."""
        return self._variable(("present", t, s, v), 0.0, False, True, False)

    def _variable(self, name: tuple, cost: float, low: bool, high: bool, whole: bool) -> int:
        if name not in self.index:
            self.index[name] = len(self.cost)
            self.cost.append(cost)
            self.lower.append(float(low))
            self.upper.append(float(high))
            self.whole.append(int(whole))
        return self.index[name]

    def _row(self, terms: Iterable[tuple[int, float]], low: float) -> None:
        self.rows.append((list(terms), low))

    def _stages(self) -> None:
        count = len(self.problem.steps)
        for t in range(count):
            for v in self.values:
                makers = [s for s in self.makers[v] if s <= t]
                made = [(self.run(t, s), 1.0) for s in makers]
                if t + 1 < count:
                    self._row([(self.held(t + 1, v), -1), (self.held(t, v), 1), *made], 0)
                for s in self.readers.get(v, ()):
                    if s <= t:
                        before = [(self.run(t, k), 1.0) for k in makers if k < s]
                        self._row([(self.run(t, s), -1), (self.held(t, v), 1), *before], 0)

    def peak(self) -> int:
        """Variable: the peak memory, in units of `unit`."""
        return self._variable(("peak",), 0.0, False, True, False)

    def limit(self, nbytes: int) -> None:
        """Allow a peak of at most `nbytes`."""
        self.upper[self.peak()] = nbytes / self.unit

    def _memory(self) -> None:
        base = sum(self.problem.nbytes[v] for v in self.problem.always_live) / self.unit
        self.upper[self.peak()] = 1.0
        for t, last in enumerate(self.problem.steps):
            for step in self.problem.steps[: t + 1]:
                s, live = step.id, []
                for v in self.values:
                    if self.problem.nbytes[v] and self.makers[v][0] <= t:
                        self._presence(t, s, v)
                        live.append((self._bytes(t, s, v), -self.problem.nbytes[v] / self.unit))
                if step.recomputable or step is last:
                    live.append((self.run(t, s), -step.workspace / self.unit))
                self._row([(self.peak(), 1.0), *live], base)

    def _bytes(self, t: int, s: int, v: int) -> int:
        """Variable: at step s, v occupies bytes of its own, not those of a value that dies
        there.
        """
        pairs = [r for w, r in self.problem.steps[s].inplace if w == v and self._leaves(v, r)]
        here = self.present(t, s, v)
        if not pairs:
            return here
        own = self._variable(("own", t, s, v), 0.0, False, True, False)
        stays = []
        for r in pairs:
            after = self._variable(("after", t, s, r), 0.0, False, True, False)
            sources, sinks = self._ends(t, s, r)
            for a in sources:
                for b in sinks:
                    if b != self.index.get(("run", t, s)):
                        self._row([(after, 1), (a, -1), (b, -1)], -1)
            stays.append((after, -1.0))
        self._row([(own, 1), (here, -1), *stays], -len(stays))
        return own

    def _leaves(self, written: int, read: int) -> bool:
        """Whether the bytes of `read` can pass to `written`."""
        same = self.problem.nbytes[written] == self.problem.nbytes[read]
        held = read in self.problem.always_live or read in self.problem.kept
        return same and not held and written != read and read in self.makers

    def _ends(self, t: int, s: int, v: int) -> tuple[list[int], list[int]]:
        """Variables that mean v was made by step s of stage t, and that it is read from then on."""
        sources = [self.held(t, v), *(self.run(t, k) for k in self.makers[v] if k <= s)]
        sinks = [self.run(t, k) for k in self.readers.get(v, ()) if s <= k <= t]
        if t + 1 < len(self.problem.steps):
            sinks.append(self.held(t + 1, v))
        return sources, sinks

    def _presence(self, t: int, s: int, v: int) -> None:
        """Require memory for a value that was made before and is read afterwards."""
        sources, sinks = self._ends(t, s, v)
        here = self.present(t, s, v)
        for a in sources:
            for b in sinks:
                self._row([(here, 1), (a, -1), (b, -1)], -1)
        if s in self.makers[v] and v not in self.problem.optional:
            self._row([(here, 1), (self.run(t, s), -1)], 0)

    def matrix(self) -> tuple[list[int], list[int], list[float], list[float]]:
        """Rows, columns and coefficients of the inequalities, and their lower bounds."""
        rows, columns, values = [], [], []
        for k, (terms, _) in enumerate(self.rows):
            for column, value in terms:
                rows.append(k)
                columns.append(column)
                values.append(value)
        return rows, columns, values, [low for _, low in self.rows]

    def schedule(self, x: np.ndarray) -> Schedule:
        """The runs of a solution, stage by stage."""
        count = len(self.problem.steps)
        chosen = ((t, s) for t in range(count) for s in range(t + 1))
        return tuple(
            s for t, s in chosen if ("run", t, s) in self.index and x[self.run(t, s)] > 0.5
        )
