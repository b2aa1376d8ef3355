"""Leave a schedule's peak and cost as they are and make room below it, compiled.

Where much is live beside the peak, buffers leave no gap to one another and no placement comes
near the lower bound. Many steps may run earlier or later: weight gradients, sums, casts. Moving
them shortens lives there.
"""

import numpy as np

from edgetrain.kernels.jit import hot

from . import engine
from .anneal import shift_step
from .general import decisions
from .packed import pack
from .problem import Problem, Schedule

MOVES = 3000
WORK = 4_000_000  # steps evaluated at most
_MIX = 88172645463325253


def relax(problem: Problem, schedule: Schedule, crowding: float, seed: int) -> Schedule:
    """A schedule of the same peak, or less, and the same cost, with less live near the peak.

    Args:
      crowding: the sum over all positions of (live bytes / peak) to this power falls.
      seed: of the random moves, a small positive number.
    """
    packed = pack(problem)
    trace = engine.new_trace(packed, max(12 * len(problem.steps) + 64, len(schedule) + 64))
    order, drops = decisions(problem, schedule)
    tries = min(MOVES, WORK // len(schedule))
    state = np.array([seed * _MIX], np.uint64)
    length = _relax(packed, order, drops, trace, tries, crowding, state)
    return tuple(trace.schedule[:length].tolist())


@hot
def _relax(p, order, drops, t, tries, crowding, state):
    """Moves steps of `order`; returns the length of the schedule that is left in the trace."""
    count, steps = drops.size, order.size
    place, next_order, next_place = np.empty(steps, np.int64), order.copy(), order.copy()
    for k in range(steps):
        place[order[k]] = k
    first = engine.evaluate(p, order, drops, count, engine.INFEASIBLE, t)
    peak, extra, least = first[2], first[4], _crowd(t, first[0], first[2], crowding)
    for _ in range(tries):
        next_order[:], next_place[:] = order, place
        if not shift_step(p, next_order, next_place, state):
            continue
        got = engine.evaluate(p, next_order, drops, count, peak, t)
        if got[2] > peak or got[4] > extra:
            continue
        crowd = _crowd(t, got[0], peak, crowding)
        if crowd <= least:
            least = crowd
            order, next_order = next_order, order
            place, next_place = next_place, place
    return engine.evaluate(p, order, drops, count, peak, t)[0]


@hot
def _crowd(t, length, peak, power):
    total = 0.0
    for k in range(length):
        total += (t.profile[k] / peak) ** power
    return total
