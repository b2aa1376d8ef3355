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
def random(state):
    """The next number in [0, 1) (xorshift)."""
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
def _idle_touch(p, t, touches, position, state):
    """A touch after which its value lies idle across a position of the schedule, -1 for none.

    Of a few random candidates the one with the most bytes per cost of making it again wins.
    """
    best, score, found = -1, -1.0, 0
    for _ in range(48):
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
        found += 1
        if found >= 3:
            break
    return best


@hot
def _add(p, order, drops, count, t, touches, position, plan, state):
    """Drop a value that lies idle at a position; notes the bytes and cost expected of it."""
    k = _idle_touch(p, t, touches, position, state)
    if k < 0 or count >= drops.size - 1:
        return count
    after, v = t.touch_next[k], t.touch_value[k]
    first, last = t.touch_time[k] + 1, t.touch_time[after]
    time = first
    if random(state) < 0.3:
        time = first + int(random(state) * (last - first + 1))
    _expect(plan, t.touch_at[k] + 1, t.touch_at[after], -p.size[v], p.cost[p.maker[v]])
    return _insert(drops, count, order[time] * p.size.size + v)


@hot
def _take(p, drops, count, t, at, repeat, plan):
    """Delete drops at, at + 1 ..; notes the bytes that stay in memory and the cost saved."""
    stop = min(count, at + repeat)
    for k in range(at, stop):
        v = drops[k] % p.size.size
        _expect(plan, t.gap_from[k] + 1, t.gap_to[k], p.size[v], -p.cost[p.maker[v]])
    for k in range(stop, count):
        drops[k - stop + at] = drops[k]
    return count - (stop - at)


@hot
def _expect(plan, start, stop, nbytes, cost):
    n = int(plan[0, 0])
    if n + 1 < plan.shape[0]:
        plan[n + 1, 0], plan[n + 1, 1], plan[n + 1, 2], plan[n + 1, 3] = start, stop, nbytes, cost
        plan[0, 0] = n + 1


@hot
def shift_step(p, order, place, state):
    """Move one step of the base order within what its neighbours in the graph allow."""
    n = order.size
    at = int(random(state) * n)
    s = order[at]
    low, high = 0, n - 1
    for k in range(p.before_at[s], p.before_at[s + 1]):
        low = max(low, place[p.before[k]] + 1)
    for k in range(p.behind_at[s], p.behind_at[s + 1]):
        high = min(high, place[p.behind[k]] - 1)
    if low >= high:
        return False
    to = low + int(random(state) * (high - low + 1))
    if random(state) < 0.5:
        to = max(low, min(high, at + int((random(state) - 0.5) * 9)))
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
    if random(state) < 0.5:
        return peak_at
    start = int(random(state) * length)
    for j in range(length):
        position = (start + j) % length
        if t.profile[position] > budget:
            return position
    return peak_at


@hot
def _window(idle, values, drops, count, state):
    """Drop or keep, at once, the cheap or all values born within a stretch of the forward."""
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
            at = idle.place[v]
            if at < 0 or idle.born[at] < low or idle.born[at] > high or idle.density[at] < dense:
                drops[n] = drops[k]
                n += 1
        count = n
    return count


@hot
def _exchange(idle, values, drops, count, state):
    """Keep a dropped value and drop one born near it instead."""
    at = int(random(state) * count)
    k = idle.place[drops[at] % values]
    if k < 0:
        return count
    other = k + int((random(state) - 0.5) * 17)
    if other < 0 or other >= idle.value.size or other == k:
        return count
    return _insert(drops, _delete(drops, count, at), idle.key[other])


@hot
def _mutate(
    p, idle, order, place, drops, count, t, length, touches, where, budget, over, plan, state
):
    """One random move on (order, drops) in place; returns the number of drops.

    `plan[0, 0]` becomes the number of expected effects noted in the rows below it, -1 where a
    move is too large to foresee.
    """
    dice = random(state)
    plan[0, 0] = -1
    if dice < 0.03 and shift_step(p, order, place, state):
        return count
    if dice < 0.06:
        return _window(idle, p.size.size, drops, count, state)
    if dice < 0.10 and count > 0:
        return _exchange(idle, p.size.size, drops, count, state)
    plan[0, 0] = 0
    repeat = 1 + int(random(state) * random(state) * 4)
    if count > 0 and (dice < 0.55 or not over):
        at = int(random(state) * count)
        start, stop = t.gap_from[at], t.gap_to[at]
        count = _take(p, drops, count, t, at, repeat, plan)
        if dice < 0.25:
            return count
        position = start + 1 + int(random(state) * max(1, stop - start - 1))
        return _add(p, order, drops, count, t, touches, position, plan, state)
    position = _position_above(t, length, where, budget, state)
    for _ in range(repeat):
        count = _add(p, order, drops, count, t, touches, position, plan, state)
    return count


@hot
def _guess(t, scratch, length, plan, budget):
    """Peak, excess and extra cost that the effects of a plan alone would lead to."""
    now = scratch[:length]
    now[:] = t.profile[:length]
    extra = 0.0
    for k in range(1, int(plan[0, 0]) + 1):
        extra += plan[k, 3]
        now[int(plan[k, 0]) : int(plan[k, 1])] += np.int64(plan[k, 2])
    peak, over = np.int64(0), np.int64(0)
    for position in range(length):
        peak = max(peak, now[position])
        over += max(np.int64(0), now[position] - budget)
    return peak, over / max(budget, 1), extra


@hot
def _settle(drops, count, t, to):
    """Copy the drops that had an effect, and close up what the trace noted of them."""
    n = 0
    for k in range(count):
        if t.used[k]:
            to[n] = drops[k]
            t.gap_from[n], t.gap_to[n] = t.gap_from[k], t.gap_to[k]
            n += 1
    return n


@hot
def _energy(peak, extra, excess, length, budget, weight):
    return extra + weight * (max(0.0, peak / budget - 1.0) + 0.3 * excess / length)


@hot
def anneal(p, idle, t, spare, archive, start, budget, work, warm, cool, steep, state):
    """Search around one point of the archive for the cheapest schedule within a budget.

    Moves whose foreseeable effect would be refused are dropped before they are evaluated, but
    for one in ten.

    Args:
      p: Packed.  idle: Moves.  t, spare: two Traces.  archive: receives what is found.
      start: index of the point to start from.  budget: bytes.  work: steps to evaluate.
      warm, cool: first and last temperature, in mean costs of one drop.
      steep: weight of bytes above the budget.  state: random state.
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
    plan, scratch = np.zeros((16, 4)), np.empty(t.profile.size, np.int64)
    length, touches, peak, where, extra, excess = evaluate(p, order, drops, count, budget, t)
    count = _settle(drops.copy(), count, t, drops)
    scale = (extra + 1e-4) / (count + 4)
    weight = steep * (extra + 0.02)
    energy = _energy(peak, extra, excess, length, budget, weight)
    done = 0.0
    while done < work:
        heat = warm * scale * (cool / warm) ** (done / work)
        limit = energy - heat * np.log(random(state) + 1e-300)
        next_order[:], next_place[:] = order, place
        next_drops[:count] = drops[:count]
        n = _mutate(
            p, idle, next_order, next_place, next_drops, count, t, length, touches, where, budget,
            peak > budget, plan, state,
        )  # fmt: skip
        if plan[0, 0] == 0:
            done += 40
            continue
        if plan[0, 0] > 0 and random(state) < 0.9:
            done += 30 + 0.1 * length
            guess = _guess(t, scratch, length, plan, budget)
            if _energy(guess[0], extra + guess[2], guess[1], length, budget, weight) > limit:
                continue
        done += 60 + length
        got = evaluate(p, next_order, next_drops, n, budget, spare)
        if got[2] >= INFEASIBLE:
            continue
        new = _energy(got[2], got[4], got[5], got[0], budget, weight)
        if new <= limit:
            length, touches, peak, where, extra, excess = got
            energy = new
            count = _settle(next_drops, n, spare, drops)
            order, next_order = next_order, order
            place, next_place = next_place, place
            t, spare = spare, t
            offer(archive, peak, extra, order, drops, count)
    return done


@hot
def descend(p, idle, t, spare, archive, low, work, warm, cool, steep, state):
    """Fill the archive: anneal for falling budgets from the regular peak down to `low` bytes."""
    budget = np.float64(archive.peak[archive.filled[0] - 1])
    done, failed = 0, 0
    while budget > low and failed < 3 and done < 8 * work:
        start = find(archive, np.int64(budget * 1.02))
        start = max(start, 0)
        done += anneal(
            p,
            idle,
            t,
            spare,
            archive,
            start,
            np.int64(budget),
            work // 24,
            warm,
            cool,
            steep,
            state,
        )
        if archive.peak[0] > budget:
            failed += 1
        else:
            failed = 0
        budget *= 0.94
    return done


@hot
def polish(p, idle, t, spare, archive, low, rounds, work, warm, cool, steep, state):
    """Anneal again for budgets spread over the archive, each from its best point so far."""
    done = 0
    for k in range(rounds):
        top, bottom = np.log(archive.peak[archive.filled[0] - 1]), np.log(archive.peak[0])
        share = ((k * 0.6180339887498949) % 1.0) ** 1.3
        budget = np.exp(bottom + (top - bottom) * share) * (0.97 if share < 0.1 else 1.0)
        if k % 4 == 3:
            budget = archive.peak[0] * (0.9 + 0.09 * random(state))
        budget = max(budget, low)
        start = max(0, find(archive, np.int64(budget * (1.0 + 0.5 * random(state) ** 3))))
        w = 0.3 * warm * 30.0 ** random(state)
        st = steep ** random(state) * 0.7
        if k % 4 == 3:
            st = steep * 4.0 ** (random(state) - 0.5)
        done += anneal(
            p,
            idle,
            t,
            spare,
            archive,
            start,
            np.int64(budget),
            work // rounds,
            w,
            w * cool,
            st,
            state,
        )
    return done
