"""Random moves on decisions, compiled: add, take back or exchange drops; move steps."""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import Floats, Ints

from .idle_times import IdleTimes

# Shares of the moves, as cumulative limits of one random number: move a step, drop or keep a
# stretch of the forward, move a drop to a neighbour; other moves take drops back and add new ones.
SHIFT, WINDOW, EXCHANGE, TAKE_ALONE, TAKE = 0.03, 0.06, 0.10, 0.25, 0.55
TRIED_TOUCHES, FOUND_TOUCHES = 48, 3  # random touches tried for a drop, and idle ones compared
LATE_DROP = 0.3  # share of the added drops that may come later than the first moment
NEAR_SHIFT = 0.5  # share of the moved steps that stay within NEAR_STEPS
NEAR_STEPS, NEAR_VALUES = 9, 17
UNKNOWN = -1  # in place of the number of expected effects


class Moves(NamedTuple):
    """The idle values in the form the compiled moves need; `place` is -1 for other values."""

    value: Ints
    born: Ints
    key: Ints
    density: Floats
    place: Ints


def moves(idle: IdleTimes, values: int) -> Moves:
    """Build the `Moves`; density is the recomputation cost of a value per byte."""
    place = np.full(values, -1, np.int64)
    place[idle.value] = np.arange(len(idle.value))
    density = idle.cost / np.maximum(idle.nbytes, 1)
    return Moves(idle.value, idle.born, idle.keys(values), density, place)


@loop
def random(state):
    """The next number in [0, 1) (xorshift)."""
    x = state[0]
    x ^= (x << np.uint64(13)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    x ^= x >> np.uint64(7)
    x ^= (x << np.uint64(17)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    state[0] = x
    return np.float64(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@loop
def _insert(drops, count, key):
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if drops[middle] < key:
            low = middle + 1
        else:
            high = middle
    if low < count and drops[low] == key:
        return count
    for j in range(count, low, -1):
        drops[j] = drops[j - 1]
    drops[low] = key
    return count + 1


@loop
def _delete(drops, count, index):
    for j in range(index, count - 1):
        drops[j] = drops[j + 1]
    return count - 1


@loop
def _idle_touch(p, t, touches, position, state):
    """A touch after which its value is idle across a position of the schedule; -1: none found.

    Takes the best of a few random candidates: the most bytes per cost of recomputing them.
    """
    best, score, result = -1, -1.0, 0
    for _ in range(TRIED_TOUCHES):
        k = int(random(state) * touches)
        after = t.touch_next[k]
        if after < 0 or t.touch_at[k] >= position or t.touch_at[after] <= position:
            continue
        v = t.touch_value[k]
        if p.maker[v] < 0 or t.touch_time[after] <= t.touch_time[k]:
            continue
        worth = p.size[v] / (p.cost[p.maker[v]] + 1e-6) * (0.2 + random(state))
        if worth > score:
            best, score = k, worth
        result += 1
        if result >= FOUND_TOUCHES:
            break
    return best


@loop
def _add(p, order, drops, count, t, touches, position, walk, state):
    """Drop a value that is idle at a position; notes the expected bytes and cost."""
    k = _idle_touch(p, t, touches, position, state)
    if k < 0 or count >= drops.size - 1:
        return count
    after, v = t.touch_next[k], t.touch_value[k]
    first, last = t.touch_time[k] + 1, t.touch_time[after]
    time = first
    if random(state) < LATE_DROP:
        time = first + int(random(state) * (last - first + 1))
    _expect(walk, t.touch_at[k] + 1, t.touch_at[after], -p.size[v], p.cost[p.maker[v]])
    return _insert(drops, count, order[time] * p.size.size + v)


@loop
def _take(p, drops, count, t, offset, repeat, walk):
    """Delete drops from `at` on; notes the bytes that stay in memory and the cost saved."""
    stop = min(count, offset + repeat)
    for k in range(offset, stop):
        v = drops[k] % p.size.size
        _expect(walk, t.gap_from[k] + 1, np.int64(t.gap_to[k]), p.size[v], -p.cost[p.maker[v]])
    for k in range(stop, count):
        drops[k - stop + offset] = drops[k]
    return count - (stop - offset)


@loop
def _expect(walk, start, stop, nbytes, cost):
    """Note the effect of a move on bytes and extra cost, if there is room."""
    n = walk.expected[0]
    if n < walk.effect_start.size:
        walk.effect_start[n], walk.effect_stop[n] = start, stop
        walk.effect_nbytes[n], walk.effect_cost[n] = nbytes, cost
        walk.expected[0] = n + 1


@loop
def shift_step(p, order, place, state):
    """Move one step of the base order within the limits of its dependencies."""
    n = order.size
    index = int(random(state) * n)
    s = order[index]
    low, high = 0, n - 1
    for k in range(p.before_at[s], p.before_at[s + 1]):
        low = max(low, place[p.before[k]] + 1)
    for k in range(p.behind_at[s], p.behind_at[s + 1]):
        high = min(high, place[p.behind[k]] - 1)
    if low >= high:
        return False
    to = low + int(random(state) * (high - low + 1))
    if random(state) < NEAR_SHIFT:
        to = max(low, min(high, index + int((random(state) - 0.5) * NEAR_STEPS)))
    if to == index:
        return False
    way = 1 if to > index else -1
    for j in range(index, to, way):
        order[j] = order[j + way]
        place[order[j]] = j
    order[to] = s
    place[s] = to
    return True


@loop
def _position_above(t, length, peak_at, budget, state):
    if random(state) < 0.5:
        return peak_at
    start = int(random(state) * length)
    for j in range(length):
        position = (start + j) % length
        if t.profile[position] > budget:
            return position
    return peak_at


@loop
def _window(idle, values, drops, count, state):
    """Drop or keep, all at once, cheap or all values made within a stretch of the forward."""
    n = idle.value.size
    if n == 0:
        return count
    length = 1 + int(n * 0.5 ** (1.0 + 7.0 * random(state)))
    start = int(random(state) * n)
    stop = min(n, start + length)
    dense = idle.density[start + int(random(state) * (stop - start))]
    keep = random(state) < 0.5
    for k in range(start, stop):
        if not keep and idle.density[k] <= dense and count < drops.size - 1:
            count = _insert(drops, count, idle.key[k])
    if keep:
        low, high = idle.born[start], idle.born[stop - 1]
        n = 0
        for k in range(count):
            v = drops[k] % values
            index = idle.place[v]
            if (
                index < 0
                or idle.born[index] < low
                or idle.born[index] > high
                or idle.density[index] < dense
            ):
                drops[n] = drops[k]
                n += 1
        count = n
    return count


@loop
def _exchange(idle, values, drops, count, state):
    """Keep a dropped value and drop one made near it instead."""
    index = int(random(state) * count)
    k = idle.place[drops[index] % values]
    if k < 0:
        return count
    other = k + int((random(state) - 0.5) * NEAR_VALUES)
    if other < 0 or other >= idle.value.size or other == k:
        return count
    return _insert(drops, _delete(drops, count, index), idle.key[other])


@loop
def mutate(p, idle, order, place, drops, count, t, now, budget, walk, state):
    """Make one random move on (order, drops) in place; returns the number of drops.

    Args:
      now: Outcome of the current decisions, which `t` traces.
      walk: receives the expected effects; `expected` becomes UNKNOWN if a move is too large to
        predict.
    """
    dice = random(state)
    walk.expected[0] = UNKNOWN
    if dice < SHIFT and shift_step(p, order, place, state):
        return count
    if dice < WINDOW:
        return _window(idle, p.size.size, drops, count, state)
    if dice < EXCHANGE and count > 0:
        return _exchange(idle, p.size.size, drops, count, state)
    walk.expected[0] = 0
    repeat = 1 + int(random(state) * random(state) * 4)
    if count > 0 and (dice < TAKE or now.peak <= budget):
        offset = int(random(state) * count)
        start, stop = t.gap_from[offset], t.gap_to[offset]
        count = _take(p, drops, count, t, offset, repeat, walk)
        if dice < TAKE_ALONE:
            return count
        position = start + 1 + int(random(state) * max(1, stop - start - 1))
        repeat = 1
    else:
        position = _position_above(t, now.length, now.where, budget, state)
    for _ in range(repeat):
        count = _add(p, order, drops, count, t, now.touches, position, walk, state)
    return count
