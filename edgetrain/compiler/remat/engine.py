"""Turn decisions into a schedule and measure it, compiled: one evaluation is a few microseconds.

The decisions are a base order of all steps and a sorted list of *drops*, each `step * values +
value`: forget this value just before that step of the base order. Whatever a step reads and is
not in memory is recomputed on demand, depth first, directly before it. A drop whose step is the
value's own maker postpones the first run until something asks for it.
"""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.jit import hot

from .packed import Packed

INFEASIBLE = np.int64(2**62)


class Trace(NamedTuple):
    """What one evaluation leaves behind; positions are those of the schedule.

    A *touch* is the making or a reading of an instance; `touch_next` links those of one instance
    and `touch_time` is the base position at which the touch happens. `used[k]` tells whether the
    k-th drop caused a recomputation; its value is absent between positions gap_from and gap_to.
    """

    schedule: np.ndarray
    profile: np.ndarray
    touch_at: np.ndarray
    touch_time: np.ndarray
    touch_value: np.ndarray
    touch_next: np.ndarray
    birth: np.ndarray
    death: np.ndarray
    owner: np.ndarray
    reads: np.ndarray
    last_touch: np.ndarray
    current: np.ndarray
    runs: np.ndarray
    stack: np.ndarray
    stack_at: np.ndarray
    swap_new: np.ndarray
    swap_old: np.ndarray
    used: np.ndarray
    forgotten: np.ndarray
    bucket: np.ndarray
    gap_from: np.ndarray
    gap_to: np.ndarray


def new_trace(packed: Packed, longest: int) -> Trace:
    """Room for schedules of at most `longest` steps."""
    steps, values = len(packed.cost), len(packed.size)
    per_step = np.diff(packed.read_at) + np.diff(packed.write_at) + np.diff(packed.update_at)
    widest, mean = int(per_step.max(initial=1)), per_step.mean()
    touches = int(min(widest, 2 * mean + 2) * longest) + values + widest + 8
    rooms = [longest + 2, longest + 3, *[touches] * 9, values]
    rooms += [steps, steps + 1, steps + 1, touches, touches]
    arrays: list[np.ndarray] = [np.zeros(room, np.int64) for room in rooms]
    arrays += [
        np.zeros(touches, np.bool_),
        np.zeros(values, np.int32),
        np.zeros(steps + 1, np.int32),
        np.zeros(touches, np.int32),
        np.zeros(touches, np.int32),
    ]
    return Trace._make(arrays)


@hot
def evaluate(p, order, drops, count, budget, t):
    """Schedule, peak, extra cost and excess of the decisions.

    Args:
      p: Packed.  order: base order.  drops[:count]: sorted.  budget: bytes.  t: Trace to fill.
    Returns:
      (length, touches, peak bytes, position of the peak, extra cost, excess); excess is the sum
      of the bytes above the budget over all positions, divided by the budget. The peak is
      INFEASIBLE where the decisions make no schedule or a longer one than the trace holds.
    """
    steps, values = p.cost.size, p.size.size
    longest, most = t.schedule.size - 2, t.touch_at.size - values - 4
    t.current[:] = -1
    t.runs[:] = 0
    instances = touches = length = swaps = 0
    extra = 0.0
    k = 0
    for s in range(steps):
        t.bucket[s] = k
        while k < count and drops[k] < (s + 1) * values:
            k += 1
    t.bucket[steps] = count
    t.used[:count] = False
    bad = (steps, 0, INFEASIBLE, 0, 1e30, 1e30)
    for time in range(steps):
        base = order[time]
        skip = False
        for k in range(t.bucket[base], t.bucket[base + 1]):
            v = drops[k] - base * values
            if p.maker[v] == base:
                skip = t.used[k] = True
                t.gap_from[k] = t.gap_to[k] = length
            elif p.maker[v] >= 0 and t.current[v] >= 0:
                t.gap_from[k] = t.death[t.current[v]]
                t.current[v] = -1
                t.forgotten[v] = k
        if skip:
            continue
        depth = 0
        t.stack[0] = base
        t.stack_at[0] = p.read_at[base]
        while depth >= 0:
            s = t.stack[depth]
            k = t.stack_at[depth]
            stop = p.read_at[s + 1]
            while k < stop and (t.current[p.read[k]] >= 0 or p.present[p.read[k]]):
                k += 1
            if k < stop:
                v = p.read[k]
                maker = p.maker[v]
                if maker < 0 or depth + 1 >= steps:
                    return bad
                if t.runs[maker] > 0:
                    t.used[t.forgotten[v]] = True
                    t.gap_to[t.forgotten[v]] = length
                t.stack_at[depth] = k
                depth += 1
                t.stack[depth] = maker
                t.stack_at[depth] = p.read_at[maker]
                continue
            depth -= 1
            if length >= longest or touches >= most - (stop - p.read_at[s]):
                return bad
            t.schedule[length] = s
            if t.runs[s] > 0:
                extra += p.cost[s]
            t.runs[s] += 1
            instances, touches, swaps = _run(p, t, s, length, time, instances, touches, swaps)
            length += 1
    for s in range(steps):
        if t.runs[s] == 0:
            return bad
    peak, where, excess = _measure(p, t, length, instances, swaps, budget)
    return length, touches, peak, where, extra, excess


@hot
def _run(p, t, s, length, time, instances, touches, swaps):
    """What step `s` reads, shares, writes and updates at position `length`; the counts after it."""
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


@hot
def _open(t, i, v, position):
    t.owner[i] = v
    t.birth[i] = position
    t.reads[i] = 0
    t.last_touch[i] = -1


@hot
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


@hot
def _measure(p, t, length, instances, swaps, budget):
    profile = t.profile
    profile[: length + 1] = 0
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
