"""Turns a problem into a chain of stages. The forward pass is cut wherever a single value crosses,
or at the problem's own cuts, which several values may cross.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...profile import Profile, profile
from ..problem import Problem
from ..search.idle_times import IdleTimes, crossing_nbytes, idle_values


@dataclass(frozen=True, slots=True)
class Chain:
    """Stages 1 .. n as a chain solver sees them; index 0 is the input.

    Attributes:
      forward, backward: step ids of each stage, in order; stage 0 has the steps before and after
        all stages.
      out: bytes that a stage passes on; values that several stages read stay, and are not counted.
      saved: bytes of all other values that its backward needs from its forward.
      grad: bytes of the gradient of `out`.
      cost: cost of its forward.
      run, back: additional bytes that forward and backward need.
    """

    forward: tuple[tuple[int, ...], ...]
    backward: tuple[tuple[int, ...], ...]
    out: np.ndarray
    saved: np.ndarray
    grad: np.ndarray
    cost: np.ndarray
    run: np.ndarray
    back: np.ndarray

    def __len__(self) -> int:
        """The number of stages, without the input."""
        return len(self.out) - 1

    def parts(self, span: slice = slice(None)) -> list[np.ndarray]:
        """All numeric columns for some stages; stages with equal numbers have equal tables."""
        columns = (self.out, self.saved, self.grad, self.cost, self.run, self.back)
        return [column[span] for column in columns]


def chain_of(problem: Problem) -> Chain | None:
    """The stages of a problem whose forward comes first; None if it has fewer than two cuts."""
    idle = idle_values(problem)
    total = len(problem.steps)
    forwards = [step.id for step in problem.steps if step.recomputable]
    if len(forwards) < 2:
        return None
    first_back = min(forwards[-1] + 1, len(problem.steps))
    one_each = np.ones(len(idle.value), np.int64)
    crossing = profile(idle.born + 1, idle.last + 1, one_each).at(np.arange(total + 2))
    last = forwards[-1]
    if problem.cuts:
        cuts = [c for c in problem.cuts if forwards[0] < c <= last]
    else:
        cuts = [c for c in range(forwards[0] + 1, last + 1) if crossing[c] == 1]
    if len(cuts) < 2:
        return None
    return _measure(problem, idle, [forwards[0], *cuts, last + 1], first_back)


def _measure(problem: Problem, idle: IdleTimes, bounds: list[int], turn: int) -> Chain:
    count = len(bounds) - 1
    stage_of = np.searchsorted(bounds, np.arange(turn), side="right")
    born_stage = {int(v): int(stage_of[b]) for v, b in zip(idle.value, idle.born, strict=True)}
    forward = [[] for _ in range(count + 1)]  # type: list[list[int]]
    for step in problem.steps[bounds[0] : bounds[-1]]:
        if step.recomputable:
            forward[int(stage_of[step.id])].append(step.id)
    backward = _backward(problem, turn, born_stage, [len(row) for row in forward])
    crossing = crossing_nbytes(idle, len(problem.steps))
    out = np.array([0, *(crossing[b] for b in bounds[1:])], np.float64)
    # values that are live at the end of the stage that makes them
    ends = np.searchsorted(bounds[1:], np.stack([idle.born, idle.last]), side="right") + 1
    handed = {int(v) for v, begins, stops in zip(idle.value, *ends, strict=True) if begins < stops}
    if problem.cuts:
        for begins, stops, size in zip(*ends, idle.nbytes, strict=True):
            if stops > begins + 1:
                out[begins:stops] -= size
    saved, cost = np.zeros(count + 1), np.zeros(count + 1)
    for v, wanted, size in zip(idle.value, idle.wanted, idle.nbytes, strict=True):
        stage = born_stage[int(v)]
        if wanted < len(problem.steps) and int(v) not in handed:
            saved[stage] += size
    for k in range(1, count + 1):
        cost[k] = sum(problem.steps[s].cost for s in forward[k])
    if not out[count]:
        # Nothing reads the last value forwards; its bytes are needed by its own backward.
        last = problem.steps[forward[count][-1]]
        out[count] = sum(problem.nbytes[v] for v in last.writes if v not in problem.optional)
        saved[count] = max(0.0, saved[count] - out[count])
    grad = out.copy()
    grad[0] = 0
    run, back = np.zeros(count + 1), np.zeros(count + 1)
    live = _transients(problem, turn)
    for k in range(1, count + 1):
        run[k] = _forward_need(problem, forward[k]) - out[k] - out[k - 1]
        need = max((live[s] for s in backward[k]), default=0)
        back[k] = max(0.0, need - grad[k] - grad[k - 1])
    return Chain(
        tuple(map(tuple, forward)),
        tuple(map(tuple, backward)),
        out,
        saved,
        grad,
        cost,
        np.maximum(run, 0),
        back,
    )


def _backward(
    problem: Problem, turn: int, born_stage: dict[int, int], runs: list[int]
) -> list[list[int]]:
    """Backward steps by stage: the latest stage whose values they or their successors need.

    By that rule, a step that reads only a stage's input would belong to the stage before. If each
    stage has one step in both directions, steps are paired in order instead.
    """
    count = len(runs) - 1
    result = [[] for _ in runs]  # type: list[list[int]]
    latest, latest_turn = [], count
    for step in problem.steps[turn:]:
        stages = [born_stage[v] for v in step.reads if v in born_stage]
        latest_turn = min(latest_turn, max(stages, default=latest_turn))
        latest.append(latest_turn)
    pairs = list(range(count, 0, -1))
    paired = max(runs) == 1 and len(latest) == count
    if paired and all(stage <= own for stage, own in zip(latest, pairs, strict=True)):
        latest = pairs
    for k, stage in enumerate(latest, turn):
        result[stage].append(k)
    return result


def _forward_need(problem: Problem, steps: list[int]) -> float:
    """The most bytes live while these steps run and nothing is saved for backward."""
    last = {v: s for s in steps for v in problem.steps[s].reads}
    born: dict[int, int] = {}
    for s in steps:
        for v in problem.steps[s].writes:
            if v in last or v not in problem.optional:
                born.setdefault(v, s)
    read = {v: (born.get(v, steps[0]), end + 1) for v, end in last.items()}
    unread = {v: (start, steps[-1] + 1) for v, start in born.items() if v not in last}
    lives = {v: life for v, life in read.items() if v not in problem.always_live} | unread
    return _profile_of(problem, lives).peak


def _profile_of(problem: Problem, lives: Mapping[int, tuple[int, int]]) -> Profile:
    """Memory profile of values that are live on [start, stop)."""
    table = [(start, stop, problem.nbytes[v]) for v, (start, stop) in lives.items()]
    return profile(*np.array(table, np.int64).reshape(-1, 3).T)


def _transients(problem: Problem, turn: int) -> dict[int, int]:
    """Bytes live at each step from `turn` on, for values made from there on, plus workspace."""
    born: dict[int, int] = {}
    last: dict[int, int] = {}
    for step in problem.steps[turn:]:
        for v in (*step.writes, *step.updates):
            born.setdefault(v, step.id)
            last[v] = step.id
        for v in step.reads:
            if v in born:
                last[v] = step.id
    end = len(problem.steps)
    lives = {
        v: (start, end if v in problem.kept else last[v] + 1)
        for v, start in born.items()
        if v not in problem.always_live
    }
    live = _profile_of(problem, lives).at(np.arange(turn, end)).tolist()
    return {k: live[k - turn] + problem.steps[k].workspace for k in range(turn, end)}
