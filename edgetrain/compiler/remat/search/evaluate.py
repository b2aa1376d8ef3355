"""Turns decisions into a schedule and measures it, compiled: a few microseconds per evaluation.

The decisions are a base order of all steps and a sorted list of *drops*, each `step * values +
value`: forget this value just before that step of the base order. Whatever a step reads that is
not in memory is recomputed on demand, depth first, directly before it. A drop whose step is the
value's own maker postpones the first run until the value is needed.
"""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import ZERO, Flags, Ints, Ints32

from .flat_problem import FlatProblem
from .units import SEARCH

INFEASIBLE = 2**62


class Outcome(NamedTuple):
    """The schedule that results from a set of decisions, and its cost.

    Attributes:
      length: steps of the schedule.  touches: entries of the trace.
      peak: bytes, INFEASIBLE without a schedule.  where: its position.
      extra: cost of all repeated runs, as a fraction of one forward.
      excess: bytes above the budget, summed over all positions, divided by the budget.
    """

    length: int
    touches: int
    peak: int
    where: int
    extra: float
    excess: float


class Trace(NamedTuple):
    """The record of one evaluation; positions are those of the schedule.

    A *touch* is the making or a reading of an instance; `touch_next` links the touches of an
    instance and `touch_time` is the base position at which the touch happens. `used[k]` tells
    whether the k-th drop caused a recomputation; its value is absent between positions gap_from
    and gap_to.
    """

    schedule: Ints
    profile: Ints
    touch_at: Ints
    touch_time: Ints
    touch_value: Ints
    touch_next: Ints
    birth: Ints
    death: Ints
    owner: Ints
    reads: Ints
    last_touch: Ints
    current: Ints
    runs: Ints
    stack: Ints
    stack_at: Ints
    swap_new: Ints
    swap_old: Ints
    used: Flags
    forgotten: Ints32
    bucket: Ints32
    gap_from: Ints32
    gap_to: Ints32


def new_trace(flat: FlatProblem, longest: int) -> Trace:
    """An empty trace for schedules of at most `longest` steps."""
    steps, values = len(flat.cost), len(flat.size)
    per_step = np.diff(flat.read_at) + np.diff(flat.write_at) + np.diff(flat.update_at)
    widest, mean = int(per_step.max(initial=1)), per_step.mean()
    touches = int(min(widest, 2 * mean + 2) * longest) + values + widest + 8
    sizes = {
        "schedule": longest + 2,
        "profile": longest + 3,
        "current": values,
        "runs": steps,
        "stack": steps + 1,
        "stack_at": steps + 1,
        "forgotten": values,
        "bucket": steps + 1,
    }
    dtypes = dict.fromkeys(("forgotten", "bucket", "gap_from", "gap_to"), "int32")
    dtypes["used"] = "bool"
    names = Trace._fields
    return Trace(*(np.zeros(sizes.get(n, touches), dtypes.get(n, "int64")) for n in names))


@SEARCH.entry
def evaluate(
    p: FlatProblem, order: Ints, drops: Ints, count: int, budget: int, t: Trace
) -> Outcome:
    """Schedule, peak, extra cost and excess of the decisions.

    Args:
      p: the problem.  order: base order.  drops[:count]: sorted.  budget: bytes.
      t: filled with the trace.
    Returns:
      A peak of INFEASIBLE if the decisions give no schedule, or one too long for the trace.
    """
    values, longest = p.size.size, t.schedule.size - 2
    most = t.touch_at.size - values - 4
    _reset(p, drops, count, t)
    instances = touches = length = swaps = ZERO
    extra = 0.0
    for time in range(order.size):
        base = order[time]
        if _drop(p, drops, base, length, t):
            continue
        depth = 0
        t.stack[0], t.stack_at[0] = base, p.read_at[base]
        while depth >= 0:
            s = t.stack[depth]
            k, stop = t.stack_at[depth], p.read_at[s + 1]
            while k < stop and (t.current[p.read[k]] >= 0 or p.present[p.read[k]]):
                k += 1
            if k < stop:
                maker = _maker(p, p.read[k], length, t)
                if maker < 0 or depth + 1 >= order.size:
                    return Outcome(order.size, 0, INFEASIBLE, 0, 1e30, 1e30)
                t.stack_at[depth] = k
                depth += 1
                t.stack[depth], t.stack_at[depth] = maker, p.read_at[maker]
                continue
            depth -= 1
            if length >= longest or touches >= most - (stop - p.read_at[s]):
                return Outcome(order.size, 0, INFEASIBLE, 0, 1e30, 1e30)
            t.schedule[length] = s
            if t.runs[s] > 0:
                extra += p.cost[s]
            t.runs[s] += 1
            instances, touches, swaps = _run(p, t, s, length, time, instances, touches, swaps)
            length += 1
    for s in range(order.size):
        if t.runs[s] == 0:
            return Outcome(order.size, 0, INFEASIBLE, 0, 1e30, 1e30)
    peak, where, excess = _measure(p, t, length, instances, swaps, budget)
    return Outcome(length, touches, peak, where, extra, excess)


@loop
def _reset(p, drops, count, t):
    """Empty the memory, and find the first drop of each step (`t.bucket`)."""
    for v in range(t.current.size):
        t.current[v] = -1
    steps, k = t.runs.size, 0
    for s in range(steps):
        t.runs[s] = 0
        t.bucket[s] = k
        while k < count and drops[k] < (s + 1) * p.size.size:
            k += 1
    t.bucket[steps] = count
    for k in range(count):
        t.used[k] = False


@loop
def _drop(p, drops, base, length, t):
    """Forget the values dropped before a step; returns whether the step itself is postponed."""
    skip = False
    for k in range(t.bucket[base], t.bucket[base + 1]):
        v = drops[k] - base * p.size.size
        if p.maker[v] == base:
            skip = t.used[k] = True
            t.gap_from[k] = t.gap_to[k] = length
        elif p.maker[v] >= 0 and t.current[v] >= 0:
            t.gap_from[k] = t.death[t.current[v]]
            t.current[v] = -1
            t.forgotten[v] = k
    return skip


@loop
def _maker(p, v, length, t):
    """The step that can make a missing value (again), or -1."""
    maker = p.maker[v]
    if maker >= 0 and t.runs[maker] > 0:
        t.used[t.forgotten[v]] = True
        t.gap_to[t.forgotten[v]] = length
    return maker


@loop
def _run(p, t, s, length, time, instances, touches, swaps):
    """Reads, in-place swaps, writes and updates of step `s` at position `length`; new counts."""
    for k in range(p.read_at[s], p.read_at[s + 1]):
        i = t.current[p.read[k]]
        if i >= 0:
            touches = _touch(t, i, p.read[k], length, time, touches)
            t.reads[i] += 1
    for k in range(p.inplace_at[s], p.inplace_at[s + 1]):
        i = t.current[p.inplace_old[k]]
        if i >= 0:
            t.swap_old[swaps] = i
            t.swap_new[swaps] = -1 - p.inplace_new[k]
            swaps += 1
    for k in range(p.write_at[s], p.write_at[s + 1]):
        v = p.write[k]
        if not p.present[v]:
            if p.kept[v] and t.current[v] >= 0:
                t.death[t.current[v]] = length - 1
            t.current[v] = instances
            _open(t, instances, v, length)
            touches = _touch(t, instances, v, length, time, touches)
            instances += 1
    for k in range(p.update_at[s], p.update_at[s + 1]):
        v = p.update[k]
        if p.present[v]:
            continue
        if t.current[v] < 0:
            t.current[v] = instances
            _open(t, instances, v, length)
            instances += 1
        else:
            t.reads[t.current[v]] += 1
        touches = _touch(t, t.current[v], v, length, time, touches)
    back = swaps - 1
    while back >= 0 and t.swap_new[back] < 0:
        t.swap_new[back] = t.current[-1 - t.swap_new[back]]
        back -= 1
    return instances, touches, swaps


@loop
def _open(t, i, v, position):
    t.owner[i] = v
    t.birth[i] = position
    t.reads[i] = 0
    t.last_touch[i] = -1


@loop
def _touch(t, i, v, position, time, touches):
    t.death[i] = position
    t.touch_at[touches] = position
    t.touch_time[touches] = time
    t.touch_value[touches] = v
    t.touch_next[touches] = -1
    if t.last_touch[i] >= 0:
        t.touch_next[t.last_touch[i]] = touches
    t.last_touch[i] = touches
    return touches + 1


@loop
def _measure(p, t, length, instances, swaps, budget):
    """Bytes live at each position, into the profile; peak, its position, excess."""
    profile = t.profile
    for position in range(length + 1):
        profile[position] = 0
    for i in range(instances):
        v = t.owner[i]
        if t.reads[i] > 0 or not p.optional[v] or p.kept[v]:
            if p.kept[v] and t.current[v] == i:
                t.death[i] = length - 1
            profile[t.birth[i]] += p.size[v]
            profile[t.death[i] + 1] -= p.size[v]
    for k in range(swaps):
        new, old = t.swap_new[k], t.swap_old[k]
        v = t.owner[new]
        stored = t.reads[new] > 0 or not p.optional[v] or p.kept[v]
        if t.birth[new] == t.death[old] and new != old and stored:
            profile[t.birth[new]] -= p.size[v]
            profile[t.birth[new] + 1] += p.size[v]
            t.death[old] = -1
    live = np.int64(0)
    for v in range(p.size.size):
        if p.present[v]:
            live += p.size[v]
    peak, where, over = np.int64(-1), 0, 0.0
    for position in range(length):
        live += profile[position]
        now = live + p.workspace[t.schedule[position]]
        profile[position] = now
        if now > peak:
            peak, where = now, position
        if now > budget:
            over += now - budget
    return peak, where, over / max(budget, 1)
