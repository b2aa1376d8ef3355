"""A problem as flat arrays, for the compiled loops."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.kinds import Flags, Floats, Ints, Ints32

from ..problem import Problem


class FlatProblem(NamedTuple):
    """Compressed rows: the values that step s reads are `read[read_at[s] : read_at[s + 1]]`.

    maker: the only step that writes a value, if it can be repeated; -1: the value can't be made
    again.
    before, behind: steps that must precede, or follow, each step in any base order.
    """

    size: Ints
    optional: Flags
    kept: Flags
    present: Flags
    maker: Ints32
    read_at: Ints32
    read: Ints32
    write_at: Ints32
    write: Ints32
    update_at: Ints32
    update: Ints32
    inplace_at: Ints32
    inplace_new: Ints32
    inplace_old: Ints32
    before_at: Ints32
    before: Ints32
    behind_at: Ints32
    behind: Ints32
    workspace: Ints
    cost: Floats
    again: Flags


_KNOWN = 4  # problems whose arrays are cached: the microbatches being planned
_flat: list[tuple[Problem, FlatProblem]] = []


def flatten(problem: Problem) -> FlatProblem:
    """Flatten a problem into shared, read-only arrays; costs become fractions of one forward."""
    result = next((flat for item, flat in _flat if item is problem), None)
    if result is None:
        result = _flattened(problem)
        _flat[:] = [*_flat[1 - _KNOWN :], (problem, result)]
    return result


def _flattened(problem: Problem) -> FlatProblem:
    steps, count = problem.steps, len(problem.nbytes)
    reads = [sorted(set(step.reads)) for step in steps]
    pairs = [
        [
            (new, old)
            for new, old in problem.swaps(step)
            if problem.nbytes[new] == problem.nbytes[old]
        ]
        for step in steps
    ]
    before = dependencies(problem)
    behind: list[list[int]] = [[] for _ in steps]
    for step, others in enumerate(before):
        for other in others:
            behind[other].append(step)
    cost = np.array([step.cost for step in steps], np.float64)
    again = np.array([step.recomputable for step in steps], np.bool_)
    cost /= max(float(cost[again].sum()), 1e-300)
    return FlatProblem(
        np.array(problem.nbytes, np.int64),
        _mask(count, problem.optional),
        _mask(count, problem.kept),
        _mask(count, problem.always_live),
        _makers(problem),
        *_rows(reads),
        *_rows([step.writes for step in steps]),
        *_rows([step.updates for step in steps]),
        *_rows([[new for new, _ in row] for row in pairs]),
        _rows([[old for _, old in row] for row in pairs])[1],
        *_rows(before),
        *_rows(behind),
        np.array([step.workspace for step in steps], np.int64),
        cost,
        again,
    )


def dependencies(problem: Problem) -> list[list[int]]:
    """For each step, the steps that must precede it in any order.

    Contributions to one accumulated value may change places unless `after` forbids it.
    """
    makers: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    result = []
    for step in problem.steps:
        first = set(step.after)
        for value in step.reads:
            first.update(makers.get(value, ()))
        for value in (*step.writes, *step.updates):
            first.update(readers.get(value, ()))
        for value in step.writes:
            first.update(makers.get(value, ()))
            makers[value] = [step.id]
            readers[value] = []
        for value in step.updates:
            first.update(k for k in makers.get(value, ()) if value in problem.steps[k].writes)
            makers.setdefault(value, []).append(step.id)
        for value in step.reads:
            readers.setdefault(value, []).append(step.id)
        first.discard(step.id)
        result.append(sorted(first))
    return result


def _makers(problem: Problem) -> np.ndarray:
    maker = np.full(len(problem.nbytes), -2, np.int64)
    for step in problem.steps:
        for value in step.writes:
            alone = maker[value] == -2 and step.recomputable
            maker[value] = step.id if alone else -1
        for value in step.updates:
            maker[value] = -1
    for value in problem.always_live | problem.kept:
        maker[value] = -1
    return np.maximum(maker, -1).astype(np.int32)


def _mask(count: int, chosen: frozenset[int]) -> np.ndarray:
    mask = np.zeros(count, np.bool_)
    mask[sorted(chosen)] = True
    return mask


def _rows(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.zeros(len(rows) + 1, np.int32)
    starts[1:] = np.cumsum([len(row) for row in rows])
    return starts, np.array([value for row in rows for value in row], np.int32)
