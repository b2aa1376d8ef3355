"""Fixed strategies from the literature, each a set of drops; their memory is measured, not claimed.

Sources: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost (sqrt, log); Sohoni et
al. 2019, Low-Memory Neural Network Training (checkpoint-no-bn, residual-m, residual-m*).
"""

import math

import numpy as np

from edgetrain.compiler.remat.problem import Problem, Schedule
from edgetrain.compiler.remat.search.evaluate import INFEASIBLE, evaluate, new_trace
from edgetrain.compiler.remat.search.flat_problem import flatten
from edgetrain.compiler.remat.search.idle_times import IdleTimes, crossing, cuts, idle_values

# Forward FLOPs per byte below which recomputing a value counts as free (BN, ReLU, add).
_CHEAP = 4.0


def sqrt(problem: Problem, effort: int = 0) -> list[Schedule]:
    """About sqrt(n) segments; only values that cross between segments are kept."""
    idle = idle_values(problem)
    held = np.zeros(len(idle.value), np.bool_)
    for position in cuts(problem, idle, max(2, round(math.sqrt(len(idle.value))))):
        held |= crossing(idle, position)
    return _schedules(problem, idle.keys(len(problem.nbytes))[~held])


def log(problem: Problem, effort: int = 0) -> list[Schedule]:
    """Recursive halving: every level recomputes its first half once more; O(log n) is kept."""
    idle, values = idle_values(problem), len(problem.nbytes)
    keys = set(idle.keys(values).tolist())

    def halve(low: int, high: int) -> None:
        """Values low .. high - 1 are recomputed together; drop the first half again at once."""
        if high - low < 2:
            return
        middle = (low + high) // 2
        burst = int(idle.wanted[low:high].min())
        if burst + 1 < len(problem.steps):
            keys.update((burst + 1) * values + int(v) for v in idle.value[low:middle])
        halve(low, middle)
        halve(middle, high)

    halve(0, len(idle.value))
    return _schedules(problem, np.array(sorted(keys), np.int64))


def no_bn(problem: Problem, effort: int = 0) -> list[Schedule]:
    """Keep all but nearly free values: normalisations, activations, additions."""
    idle = idle_values(problem)
    return _schedules(problem, idle.keys(len(problem.nbytes))[_cheap(problem, idle)])


def residual(problem: Problem, blocks: int, star: bool) -> list[Schedule]:
    """Keep the output of every `blocks`-th residual block.

    With `star`, a recomputed segment keeps only block outputs, and never nearly free values.
    """
    idle, values = idle_values(problem), len(problem.nbytes)
    ends = _block_ends(problem, idle)
    if not ends:
        return []
    keys = idle.keys(values)
    held = np.zeros(len(idle.value), np.bool_)
    held[ends[blocks - 1 :: blocks]] = True
    chosen = set(keys[~held].tolist())
    if star:
        block = np.searchsorted(ends, np.arange(len(idle.value)))
        cheap = _cheap(problem, idle)
        for first in range(0, int(block[-1]) + 1, blocks):
            inside = np.flatnonzero((block >= first) & (block < first + blocks))
            burst = int(idle.wanted[inside].min())
            for k in inside:
                spare = cheap[k] or block[k] < block[inside[-1]]
                if spare and k not in ends and burst + 1 < len(problem.steps):
                    chosen.add((burst + 1) * values + int(idle.value[k]))
    return _schedules(problem, np.array(sorted(chosen), np.int64))


def residual_1(problem: Problem, effort: int = 0) -> list[Schedule]:
    """checkpoint-residual-1 and its recursive form."""
    return residual(problem, 1, False) + residual(problem, 1, True)


def residual_2(problem: Problem, effort: int = 0) -> list[Schedule]:
    """checkpoint-residual-2 and its recursive form."""
    return residual(problem, 2, False) + residual(problem, 2, True)


def _cheap(problem: Problem, idle: IdleTimes) -> np.ndarray:
    flops = np.array([problem.steps[k].flops for k in idle.born])
    return flops <= _CHEAP * idle.nbytes


def _block_ends(problem: Problem, idle: IdleTimes) -> list[int]:
    """Values that are the only ones live at some point, and have two readers."""
    counts = np.zeros(len(problem.steps) + 2, np.int64)
    for born, last in zip(idle.born, idle.last, strict=True):
        if last > born:
            counts[born + 1] += 1
            counts[last + 1] -= 1
    alone = np.cumsum(counts) == 1
    readers = np.zeros(len(problem.nbytes), np.int64)
    for step in problem.steps:
        if step.recomputable:
            readers[list(step.reads)] += 1
    return [
        k
        for k, (value, born) in enumerate(zip(idle.value, idle.born, strict=True))
        if alone[born + 1] and readers[value] > 1
    ]


def _schedules(problem: Problem, keys: np.ndarray) -> list[Schedule]:
    """The schedule of some drops, as a list; empty if they give none."""
    packed = flatten(problem)
    trace = new_trace(packed, 64 * len(problem.steps) + 64)
    order, drops = np.arange(len(problem.steps)), np.zeros(len(keys) + 1, np.int64)
    drops[: len(keys)] = np.sort(keys)
    got = evaluate(packed, order, drops, len(keys), INFEASIBLE, trace)
    return [tuple(trace.schedule[: got.length].tolist())] if got.peak < INFEASIBLE else []
