"""Mixed integer programming on small problems: the yardstick of the tests.

Stage t ends with step t of the order; in each stage any earlier step may run again. Linear
inequalities keep what is read in memory and count bytes at every step of every stage.

Source: Jain et al. 2020, Checkmate (with exact frees). Known limits: cubic in the steps, so
problems above `MOST_STEPS` are not tried; the order is the problem's own.
"""

from collections.abc import Iterable

import numpy as np

from .problem import Problem, Schedule
from .referee import simulate
from .store_all import store_all

MOST_STEPS = 24


def milp(problem: Problem, effort: int = 32) -> list[Schedule]:
    """The cheapest schedules for five budgets; nothing for problems above `MOST_STEPS` steps.

    `effort` is thousands of branch-and-bound nodes for each.
    """
    if len(problem.steps) > MOST_STEPS:
        return []
    found = store_all(problem)
    peak = simulate(problem, found[0]).peak_nbytes
    for share in (0.9, 0.75, 0.6, 0.5, 0.4):
        schedule = cheapest(problem, int(peak * share), effort)
        if schedule is None:
            break
        found.append(schedule)
    return found


def cheapest(problem: Problem, budget: int, effort: int = 32) -> Schedule | None:
    """The cheapest schedule in the order of the problem whose peak is at most `budget` bytes."""
    from scipy.optimize import Bounds, LinearConstraint
    from scipy.optimize import milp as solve_program
    from scipy.sparse import csr_array

    model = _Model(problem, budget)
    rows, columns, values, low = model.matrix()
    matrix = csr_array((values, (rows, columns)), shape=(len(low), len(model.cost)))
    result = solve_program(
        np.array(model.cost),
        constraints=LinearConstraint(matrix, lb=np.array(low)),
        bounds=Bounds(np.array(model.lower), np.array(model.upper)),
        integrality=np.array(model.whole),
        options={"node_limit": effort * 1000},
    )
    return None if result.x is None else model.schedule(result.x)


class _Model:
    """Variables by name, and inequalities `sum of coefficient * variable >= low`."""

    def __init__(self, problem: Problem, budget: int) -> None:
        self.problem = problem
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
        self._memory(budget)

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
        """Step s runs in stage t."""
        step = self.problem.steps[s]
        free = s < t and step.recomputable
        return self._variable(("run", t, s), step.cost * free, s == t, s == t or free, True)

    def held(self, t: int, v: int) -> int:
        """Value v is in memory when stage t begins."""
        kept = v in self.problem.kept and self.makers[v][0] < t
        possible = self.makers[v][0] < t
        return self._variable(("held", t, v), 0.0, kept, possible, True)

    def present(self, t: int, s: int, v: int) -> int:
        """Value v takes bytes at step s of stage t."""
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

    def _memory(self, budget: int) -> None:
        base = sum(self.problem.nbytes[v] for v in self.problem.always_live)
        for t, last in enumerate(self.problem.steps):
            for step in self.problem.steps[: t + 1]:
                s, live = step.id, []
                for v in self.values:
                    if self.problem.nbytes[v] and self.makers[v][0] <= t:
                        self._presence(t, s, v)
                        live.append((self.present(t, s, v), -float(self.problem.nbytes[v])))
                if step.recomputable or step is last:
                    live.append((self.run(t, s), -float(step.workspace)))
                self._row(live, float(base - budget))

    def _presence(self, t: int, s: int, v: int) -> None:
        """Bytes are taken wherever a making comes before and a reading after."""
        sources = [self.held(t, v), *(self.run(t, k) for k in self.makers[v] if k <= s)]
        sinks = [self.run(t, k) for k in self.readers.get(v, ()) if s <= k <= t]
        if t + 1 < len(self.problem.steps):
            sinks.append(self.held(t + 1, v))
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
