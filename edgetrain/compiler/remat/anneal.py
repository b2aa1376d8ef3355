"""Search decisions for a ladder of budgets by annealing on the simulated peak, compiled.

One move adds, removes, exchanges or shifts drops, or moves a step of the base order; additions
are aimed at values that are idle across a position above the budget. Every state that is not
dominated enters the archive, whatever budget it was found for. Work is counted in evaluated
steps, so a result depends on the effort and the seed alone.
"""

import numpy as np

from edgetrain.kernels.jit import hot

from .archive import find, offer
from .engine import INFEASIBLE, evaluate


@hot
def _random(state):
    x = state[0]
    x ^= (x << np.uint64(13)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    x ^= x >> np.uint64(7)
    x ^= (x << np.uint64(17)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    state[0] = x
    return np.float64(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@hot
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


@hot
def _delete(drops, count, at):
    for j in range(at, count - 1):
        drops[j] = drops[j + 1]
    return count - 1


@hot
def _add_at(p, order, drops, count, t, touches, position, tries, state):
    """Drop one of the values that lie idle at a position of the traced schedule.

    Of a few random candidates the one with the most bytes per cost of making it again wins.
    """
    values = p.size.size
    best, score = -1, -1.0
    found = 0
    for _ in range(tries):
        k = int(_random(state) * touches)
        after = t.touch_next[k]
        if after < 0 or t.touch_at[k] >= position or t.touch_at[after] <= position:
            continue
        v = t.touch_value[k]
        if p.maker[v] < 0 or t.touch_time[after] <= t.touch_time[k]:
            continue
        worth = p.size[v] / (p.cost[p.maker[v]] + 1e-4) * (0.2 + _random(state))
        if worth > score:
            best, score = k, worth
        found += 1
        if found >= 3:
            break
    if best < 0 or count >= drops.size - 1:
        return count
    first, last = t.touch_time[best] + 1, t.touch_time[t.touch_next[best]]
    time = first
    if _random(state) < 0.3:
        time = first + int(_random(state) * (last - first + 1))
    return _insert(drops, count, order[time] * values + t.touch_value[best])


@hot
def _shift_step(p, order, place, state):
    """Move one step of the base order within what its neighbours in the graph allow."""
    n = order.size
    at = int(_random(state) * n)
    s = order[at]
    low, high = 0, n - 1
    for k in range(p.before_at[s], p.before_at[s + 1]):
        low = max(low, place[p.before[k]] + 1)
    for k in range(p.behind_at[s], p.behind_at[s + 1]):
        high = min(high, place[p.behind[k]] - 1)
    if low >= high:
        return False
    to = low + int(_random(state) * (high - low + 1))
    if _random(state) < 0.5:
        to = max(low, min(high, at + int((_random(state) - 0.5) * 9)))
    if to == at:
        return False
    way = 1 if to > at else -1
    for j in range(at, to, way):
        order[j] = order[j + way]
        place[order[j]] = j
    order[to] = s
    place[s] = to
    return True


@hot
def _position_above(t, length, peak_at, budget, state):
    if _random(state) < 0.5:
        return peak_at
    start = int(_random(state) * length)
    for j in range(length):
        position = (start + j) % length
        if t.profile[position] > budget:
            return position
    return peak_at


@hot
def _mutate(p, order, place, drops, count, t, length, touches, where, budget, over, state):
    """One random move on (order, drops) in place; returns the number of drops."""
    dice = _random(state)
    if dice < 0.06 and _shift_step(p, order, place, state):
        return count
    if over and dice < 0.75:
        position = _position_above(t, length, where, budget, state)
        repeat = 1 + int(_random(state) * _random(state) * 4)
        for _ in range(repeat):
            count = _add_at(p, order, drops, count, t, touches, position, 48, state)
        if dice < 0.5 or count == 0:
            return count
        return _delete(drops, count, int(_random(state) * count))
    if count > 0 and dice < 0.85:
        at = int(_random(state) * count)
        repeat = 1 + int(_random(state) * _random(state) * 4)
        for _ in range(repeat):
            if count > 0:
                count = _delete(drops, count, min(at, count - 1))
        if dice < 0.5:
            return count
    position = int(_random(state) * length)
    return _add_at(p, order, drops, count, t, touches, position, 48, state)


@hot
def _copy_used(drops, count, used, to):
    n = 0
    for k in range(count):
        if used[k]:
            to[n] = drops[k]
            n += 1
    return n


@hot
def anneal(p, t, spare, archive, start, budget, work, warm, cool, state):
    """Search around one point of the archive for the cheapest schedule within a budget.

    Args:
      p: Packed.  t, spare: two Traces.  archive: receives what is found.
      start: index of the point to start from.  budget: bytes.  work: steps to evaluate.
      warm, cool: first and last temperature, in fractions of a forward.  state: random state.
    Returns:
      Steps evaluated.
    """
    row = archive.row[start]
    size = archive.drops.shape[1]
    order, drops = archive.order[row].copy(), np.empty(size, np.int64)
    count = archive.dropped[row]
    drops[:count] = archive.drops[row, :count]
    place = np.empty(order.size, np.int64)
    for j in range(order.size):
        place[order[j]] = j
    next_order, next_drops, next_place = order.copy(), drops.copy(), place.copy()
    length, touches, peak, where, extra, excess = evaluate(p, order, drops, count, budget, t)
    weight = 2.0
    energy = extra + weight * (_share_over(peak, budget) + 0.3 * excess / length)
    done = 0
    while done < work:
        done += length
        heat = warm * (cool / warm) ** (done / work)
        next_order[:], next_place[:] = order, place
        next_drops[:count] = drops[:count]
        n = _mutate(
            p, next_order, next_place, next_drops, count, t, length, touches, where, budget,
            peak > budget, state,
        )  # fmt: skip
        got = evaluate(p, next_order, next_drops, n, budget, spare)
        if got[2] >= INFEASIBLE:
            continue
        new = got[4] + weight * (_share_over(got[2], budget) + 0.3 * got[5] / got[0])
        if new <= energy or _random(state) < np.exp((energy - new) / heat):
            length, touches, peak, where, extra, excess = got
            energy = new
            count = _copy_used(next_drops, n, spare.used, drops)
            order, next_order = next_order, order
            place, next_place = next_place, place
            t, spare = spare, t
            offer(archive, peak, extra, order, drops, count)
    return done


@hot
def _share_over(peak, budget):
    return max(0.0, peak / budget - 1.0)


@hot
def descend(p, t, spare, archive, low, work, state):
    """Fill the archive: anneal for falling budgets from the regular peak down to `low` bytes."""
    budget = np.float64(archive.peak[archive.filled[0] - 1])
    done, failed = 0, 0
    while budget > low and failed < 3 and done < 8 * work:
        start = find(archive, np.int64(budget * 1.02))
        start = max(start, 0)
        done += anneal(p, t, spare, archive, start, np.int64(budget), work // 24, 0.01, 1e-4, state)
        if archive.peak[0] > budget:
            failed += 1
        else:
            failed = 0
        budget *= 0.94
    return done


@hot
def polish(p, t, spare, archive, low, rounds, work, state):
    """Anneal again for budgets spread over the archive, each from its best point so far."""
    done = 0
    for k in range(rounds):
        top, bottom = np.log(archive.peak[archive.filled[0] - 1]), np.log(archive.peak[0])
        share = ((k * 0.6180339887498949) % 1.0) ** 1.3
        budget = np.exp(bottom + (top - bottom) * share) * (0.97 if share < 0.1 else 1.0)
        if budget < low:
            budget = low
        start = max(0, find(archive, np.int64(budget * (1.0 + 0.03 * _random(state)))))
        done += anneal(
            p, t, spare, archive, start, np.int64(budget), work // rounds, 0.01, 1e-4, state
        )
    return done
