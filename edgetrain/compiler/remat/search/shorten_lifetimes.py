"""Frees memory below a schedule's peak, without changing its peak or cost; compiled.

If many bytes are live near the peak, buffers leave no gaps and no placement comes near the lower
bound. Many steps may run earlier or later, such as weight gradients, sums and casts, and moving
them shortens lifetimes there. Each move costs an evaluation; at most MOVES of them, or WORK steps.
"""

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import Ints, Words

from ..problem import Problem, Schedule
from ..replay import Replay
from .anneal import Walk, copy, new_walk
from .decisions import decisions
from .evaluate import INFEASIBLE, Outcome, Trace, evaluate, new_trace
from .flat_problem import FlatProblem, flatten
from .moves import shift_step
from .units import SHORTEN

MOVES = 3000
WORK = 4_000_000  # steps evaluated at most
_MIX = 88172645463325253


def shorten_lifetimes(
    problem: Problem,
    schedule: Schedule,
    crowding: float,
    seed: int,
    replay: Replay | None = None,
) -> Schedule:
    """A schedule of at most the same peak and cost, with fewer live bytes near the peak.

    Returns the schedule unchanged if its translation into decisions is worse.

    Args:
      crowding: the search lowers the sum over all positions of (live bytes / peak) to this power.
      seed: of the random moves, a small positive number.
      replay: of the problem, if one already exists.
    """
    flat = flatten(problem)
    longest = max(12 * len(problem.steps) + 64, len(schedule) + 64)
    trace = new_trace(flat, longest)
    order, drops = decisions(problem, schedule)
    walk = new_walk(len(order), len(drops), longest)
    walk.order[:] = order
    state = np.array([seed * _MIX], np.uint64)
    tries = min(MOVES, WORK // len(schedule))
    result = move_steps(flat, drops, trace, walk, tries, crowding, state)
    replay = replay or Replay(problem)
    before = replay(schedule)
    if result.peak > before.peak_nbytes:
        return schedule
    shorter = tuple(trace.schedule[: result.length].tolist())
    dearer = replay(shorter).extra_cost > before.extra_cost * (1 + 1e-9)
    return schedule if dearer else shorter


@SHORTEN.entry
def move_steps(
    p: FlatProblem, drops: Ints, t: Trace, walk: Walk, tries: int, crowding: float, state: Words
) -> Outcome:
    """Move steps of `walk.order` so that less is live; returns the outcome left in the trace."""
    order, next_order = walk.order, walk.next_order
    place, next_place = walk.place, walk.next_place
    count, steps = drops.size, order.size
    for k in range(steps):
        place[order[k]] = k
    first = evaluate(p, order, drops, count, INFEASIBLE, t)
    if first.peak == INFEASIBLE:
        return first
    least = _crowd(t, first.length, first.peak, crowding)
    for _ in range(tries):
        copy(order, next_order, steps)
        copy(place, next_place, steps)
        if not shift_step(p, next_order, next_place, state):
            continue
        got = evaluate(p, next_order, drops, count, first.peak, t)
        if got.peak > first.peak or got.extra > first.extra:
            continue
        crowd = _crowd(t, got.length, first.peak, crowding)
        if crowd <= least:
            least = crowd
            order, next_order = next_order, order
            place, next_place = next_place, place
    return evaluate(p, order, drops, count, first.peak, t)


@loop
def _crowd(t, length, peak, power):
    """The sum over all positions of (live bytes / peak) to the power `power`."""
    total = 0.0
    for k in range(length):
        total += (t.profile[k] / peak) ** power
    return total
