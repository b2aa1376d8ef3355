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
from .referee import simulate

MOVES = 3000
WORK = 4_000_000  # steps evaluated at most
_MIX = 88172645463325253


def relax(problem: Problem, schedule: Schedule, crowding: float, seed: int) -> Schedule:
    """A schedule of the same peak and cost, or less, with less live near the peak.

    The schedule itself where the search's own form of it is worse.

    Args:
      crowding: the sum over all positions of (live bytes / peak) to this power falls.
      seed: of the random moves, a small positive number.
    """
    packed = pack(problem)
    trace = engine.new_trace(packed, max(12 * len(problem.steps) + 64, len(schedule) + 64))
    order, drops = decisions(problem, schedule)
    state = np.array([seed * _MIX], np.uint64)
    tries = min(MOVES, WORK // len(schedule))
    length, peak = _relax(packed, order, drops, trace, tries, crowding, state)
    before = simulate(problem, schedule)
    if peak > before.peak_nbytes:
        return schedule
    found = tuple(trace.schedule[:length].tolist())
    dearer = simulate(problem, found).extra_cost > before.extra_cost * (1 + 1e-9)
    return schedule if dearer else found


@hot
def _relax(p, order, drops, t, tries, crowding, state):
    """Moves steps of `order`; returns length and peak of the schedule left in the trace."""
    count, steps = drops.size, order.size
    place, next_order, next_place = np.empty(steps, np.int64), order.copy(), order.copy()
    for k in range(steps):
        place[order[k]] = k
    first = engine.evaluate(p, order, drops, count, engine.INFEASIBLE, t)
    peak, extra = first[2], first[4]
    if peak == engine.INFEASIBLE:
        return first[0], peak
    least = _crowd(t, first[0], peak, crowding)
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
    last = engine.evaluate(p, order, drops, count, peak, t)
    return last[0], last[2]


@hot
def _crowd(t, length, peak, power):
    total = 0.0
    for k in range(length):
        total += (t.profile[k] / peak) ** power
    return total
