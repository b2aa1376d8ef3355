"""Properties of a problem's order: idle times of its values, and its cuts."""

from typing import NamedTuple

import numpy as np

from ...profile import profile
from ..problem import Problem
from .flat_problem import FlatProblem, flatten


class IdleTimes(NamedTuple):
    """The values that can be made again, in the order in which they are first made.

    Attributes:
      value: their ids.
      born: position of the step that makes each.
      left: the position after the last recomputable step that makes or reads it.
      wanted: the first later position that needs it, or the end.
      last: last position at which a recomputable step reads it.
      nbytes: bytes of each.
      cost: cost of making it again, as a fraction of one forward.
    """

    value: np.ndarray
    born: np.ndarray
    left: np.ndarray
    wanted: np.ndarray
    last: np.ndarray
    nbytes: np.ndarray
    cost: np.ndarray

    def keys(self, values: int) -> np.ndarray:
        """The drop that frees each value for its longest idle time."""
        return self.left * values + self.value


def idle_values(problem: Problem, flat: FlatProblem | None = None) -> IdleTimes:
    """The droppable values of the order without recomputation."""
    flat = flat or flatten(problem)
    last = [-1] * len(problem.nbytes)
    wanted = [len(problem.steps)] * len(problem.nbytes)
    for step in problem.steps:
        for value in {*step.reads, *step.updates, *step.writes}:
            if step.recomputable:
                last[value] = step.id
                wanted[value] = len(problem.steps)
            else:
                wanted[value] = min(wanted[value], step.id)
    rows = []
    for value, maker in enumerate(flat.maker.tolist()):
        if maker >= 0 and last[value] + 1 < len(problem.steps):
            size, cost = problem.nbytes[value], flat.cost[maker]
            left = last[value] + 1
            rows.append((maker, value, left, wanted[value], last[value], size, cost))
    rows.sort()
    table = np.array([row[:6] for row in rows], np.int64).reshape(-1, 6).T
    makers, values, lefts, ends, lasts, sizes = (np.ascontiguousarray(row) for row in table)
    costs = np.array([row[6] for row in rows], np.float64)
    return IdleTimes(values, makers, lefts, ends, lasts, sizes, costs)


def crossing_nbytes(idle: IdleTimes, steps: int) -> np.ndarray:
    """Bytes that recomputable steps at or after each position need from those before it."""
    return profile(idle.born + 1, idle.last + 1, idle.nbytes).at(np.arange(steps + 1))


def cuts(problem: Problem, idle: IdleTimes, parts: int) -> list[int]:
    """Positions that split the forward into `parts` of about equal bytes; few bytes cross them."""
    if parts < 2 or not len(idle.value):
        return []
    crossing = crossing_nbytes(idle, len(problem.steps))
    first, last = int(idle.born[0]) + 1, int(idle.born[-1])
    if first >= last:  # there are no steps between the first value and the last
        return []
    weight = np.zeros(len(problem.steps) + 1)
    np.add.at(weight, idle.born, idle.nbytes.astype(np.float64))
    total = np.cumsum(weight)
    result: list[int] = []
    width = total[last] / parts
    for k in range(1, parts):
        near = np.flatnonzero(np.abs(total - k * width)[first:last] <= 0.4 * width) + first
        if not len(near):
            near = np.array([int(np.abs(total - k * width)[first:last].argmin()) + first])
        # The fewest bytes; among equals, the one nearest to the even split.
        score = crossing[near] * (1 + np.abs(total[near] - k * width) / width)
        result.append(int(near[score.argmin()]))
    return sorted(set(result))


def crossing(idle: IdleTimes, position: int) -> np.ndarray:
    """Mask of the values that a cut at this position must keep."""
    return (idle.born < position) & (idle.last >= position)
