"""Branch and bound for one capacity: does a placement fit, and which?

Buffers are placed from the bottom up, each at the lowest offset that those placed before it
allow, so every stacking is met once. A node is refused where some section of time cannot hold
what is still to be placed in it, or where an unplaced buffer would fit below the next one. What
is left falls apart into parts that share no time; they are searched one by one.

Source: Moffitt 2023, MiniMalloc (canonical solutions, section inference, dynamic decomposition).
Known limit: exponential; a run is bounded by the work it may do.
"""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.jit import hot


class Search(NamedTuple):
    """State of one search; buffers are numbered in the order in which they are preferred.

    Attributes:
      first, last: sections [first, last) in which each buffer is live.
      size: bytes.  near_at, near: the buffers that share a section with each.
      low: lowest offset still open to each; the final offset once placed.
      placed: whether low is final.
      floor, release, queue: scratch for each section, each buffer, and buffers in order.
      trail_buffer, trail_low: what to restore when a node is given up.
      rows, held: members of the part that each frame has open, and their number.
      picks, picked, next_pick: candidates of each frame, their number, the next one to try.
      parent, beyond: the frame whose placement split the part off; the first section after it.
      mark, sign: length of the trail when a frame was opened; hash of what it depends on.
      failed: hashes of states known to lead nowhere.
      work: touched sections so far, and how many are allowed; length of the trail.
    """

    first: np.ndarray
    last: np.ndarray
    size: np.ndarray
    near_at: np.ndarray
    near: np.ndarray
    low: np.ndarray
    placed: np.ndarray
    floor: np.ndarray
    release: np.ndarray
    queue: np.ndarray
    trail_buffer: np.ndarray
    trail_low: np.ndarray
    rows: np.ndarray
    picks: np.ndarray
    held: np.ndarray
    picked: np.ndarray
    next_pick: np.ndarray
    parent: np.ndarray
    beyond: np.ndarray
    mark: np.ndarray
    sign: np.ndarray
    failed: np.ndarray
    work: np.ndarray


def new_search(start: np.ndarray, stop: np.ndarray, size: np.ndarray, order: np.ndarray) -> Search:
    """A search over buffers renumbered by `order`."""
    start, stop, size = start[order], stop[order], size[order]
    times = np.unique(np.concatenate([start, stop]))
    first, last = np.searchsorted(times, start), np.searchsorted(times, stop)
    count, sections = len(size), len(times)
    meets = (start[:, None] < stop[None, :]) & (start[None, :] < stop[:, None])
    np.fill_diagonal(meets, False)
    near_at = np.zeros(count + 1, np.int64)
    near_at[1:] = np.cumsum(meets.sum(axis=1))
    trail = near_at[-1] + count + 1
    rooms = [sections + 1, count, count, trail, trail]
    frames = [np.zeros(count + 2, np.int64) for _ in range(6)]
    arrays = [first, last, size, near_at, np.nonzero(meets)[1]]
    arrays += [np.zeros(count, np.int64), np.zeros(count, np.bool_)]
    arrays += [np.zeros(room, np.int64) for room in rooms]
    arrays += [np.zeros((count + 2, count), np.int32) for _ in range(2)]
    arrays += [*frames, np.zeros(count + 2, np.uint64), np.zeros(1 << 18, np.uint64)]
    return Search._make([*arrays, np.zeros(3, np.int64)])


@hot
def _place(q, i):
    """Fix buffer i at its lowest offset and push up what shares time with it."""
    q.placed[i] = True
    top = q.low[i] + q.size[i]
    trail = q.work[2]
    for k in range(q.near_at[i], q.near_at[i + 1]):
        j = q.near[k]
        if not q.placed[j] and q.low[j] < top:
            q.trail_buffer[trail] = j
            q.trail_low[trail] = q.low[j]
            trail += 1
            q.low[j] = top
    q.trail_buffer[trail] = -1 - i
    q.work[2] = trail + 1


@hot
def _undo(q, mark):
    trail = q.work[2]
    while trail > mark:
        trail -= 1
        j = q.trail_buffer[trail]
        if j >= 0:
            q.low[j] = q.trail_low[trail]
        else:
            q.placed[-1 - j] = False
    q.work[2] = trail


@hot
def _holds(q, members, least, latest, capacity):
    """Whether every section can hold what its unplaced buffers still need.

    A buffer that could only lie before (least, latest) must come to rest on one still to be
    placed. Each section is then a machine whose jobs are released at their lowest offsets.
    """
    count = 0
    for i in members:
        if q.placed[i]:
            continue
        low = q.low[i]
        if low < least or (low == least and i < latest):
            low = capacity
            for k in range(q.near_at[i], q.near_at[i + 1]):
                j = q.near[k]
                if not q.placed[j]:
                    low = min(low, max(q.low[j], least) + q.size[j])
            q.work[0] += q.near_at[i + 1] - q.near_at[i]
        if low + q.size[i] > capacity:
            return False
        q.release[i] = low
        k = count
        while k > 0 and q.release[q.queue[k - 1]] > low:
            q.queue[k] = q.queue[k - 1]
            k -= 1
        q.queue[k] = i
        q.work[0] += q.last[i] - q.first[i] + count - k + 4
        count += 1
        for s in range(q.first[i], q.last[i]):
            q.floor[s] = 0
    for k in range(count):
        i = q.queue[k]
        low, size = q.release[i], q.size[i]
        for s in range(q.first[i], q.last[i]):
            q.floor[s] = max(q.floor[s], low) + size
            if q.floor[s] > capacity:
                return False
    return True


@hot
def _split(q, members, left, into):
    """Unplaced members that share time, directly or not, with the section `left` or the next.

    Returns:
      (number of them written to `into`, end of their time, first section beyond it or -1).
    """
    sections = q.floor.size
    start, found = sections, 0
    for i in members:
        if not q.placed[i] and q.first[i] >= left:
            start = min(start, q.first[i])
    if start == sections:
        return 0, left
    end, grown = start, True
    while grown:
        grown = False
        for i in members:
            near = q.first[i] == start or start < q.first[i] < end
            if near and not q.placed[i] and q.last[i] > end:
                end = q.last[i]
                grown = True
    for i in members:
        if not q.placed[i] and q.first[i] >= start and q.first[i] < end:
            into[found] = i
            found += 1
    return found, end


@hot
def _signature(q, f, least, latest):
    """Hash of all that the rest of the search in frame f depends on; never 0."""
    h = np.uint64(0)
    for k in range(q.held[f]):
        i = q.rows[f, k]
        low = q.low[i]
        barred = low < least or (low == least and i < latest)
        x = (np.uint64(low) * np.uint64(2) + np.uint64(barred)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(29))) + np.uint64(i + 1) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
        h += x ^ (x >> np.uint64(31))
    return h | np.uint64(1)


@hot
def _rank(q, f, least, latest):
    """Fill frame f's picks: members that may come next, by offset, then by preference.

    Where the next one would leave room for another below it, the other came before.
    """
    members, picks = q.rows[f], q.picks[f]
    ceiling, count = np.int64(2**62), 0
    for k in range(q.held[f]):
        i = members[k]
        ceiling = min(ceiling, q.low[i] + q.size[i])
    for k in range(q.held[f]):
        i = members[k]
        low = q.low[i]
        if low < ceiling and (low > least or (low == least and i > latest)):
            j = count
            while j > 0 and q.low[picks[j - 1]] > low:
                picks[j] = picks[j - 1]
                j -= 1
            picks[j] = i
            count += 1
    q.sign[f] = _signature(q, f, least, latest)
    q.work[0] += q.held[f]
    if q.failed[q.sign[f] % np.uint64(q.failed.size)] == q.sign[f]:
        count = 0
    q.picked[f], q.next_pick[f], q.mark[f] = count, 0, q.work[2]


@hot
def _next_part(q, f, top):
    """Open frame top + 1 for the next part of a solved frame's ancestors; -1 when all is done."""
    while f >= 0:
        parent, left = q.parent[f], q.beyond[f]
        if parent < 0:
            return -1
        found, end = _split(q, q.rows[parent][: q.held[parent]], left, q.rows[top + 1])
        if found:
            q.held[top + 1], q.parent[top + 1], q.beyond[top + 1] = found, parent, end
            return top + 1
        f = parent
    return -1


@hot
def fits(q, capacity):
    """Place all buffers within `capacity` bytes; False where that failed or work ran out.

    A frame holds one part; it fails once none of its picks leads on, which sends the search back
    to the frame whose placement split the part off, past parts that do not matter to it.
    """
    count = q.size.size
    for i in range(count):
        q.rows[0, i] = i
    q.held[0], q.parent[0], q.beyond[0] = count, -1, 0
    top = 0
    _rank(q, 0, np.int64(-1), np.int64(-1))
    while top >= 0 and q.work[0] <= q.work[1]:
        if q.work[2] > q.mark[top]:
            _undo(q, q.mark[top])
            if _alone(q, q.picks[top, q.next_pick[top] - 1]):
                q.next_pick[top] = q.picked[top]
        if q.next_pick[top] == q.picked[top]:
            q.failed[q.sign[top] % np.uint64(q.failed.size)] = q.sign[top]
            top = q.parent[top]
            continue
        i = q.picks[top, q.next_pick[top]]
        q.next_pick[top] += 1
        _place(q, i)
        members = q.rows[top][: q.held[top]]
        if not _holds(q, members, q.low[i], i, capacity):
            continue
        found, end = _split(q, members, np.int64(0), q.rows[top + 1])
        if found:
            q.held[top + 1], q.parent[top + 1], q.beyond[top + 1] = found, top, end
            new = top + 1
        else:
            new = _next_part(q, top, top)
            if new < 0:
                return True
        pick = q.picks[q.parent[new], q.next_pick[q.parent[new]] - 1]
        _rank(q, new, q.low[pick], np.int64(pick))
        top = new
    return False


@hot
def _alone(q, i):
    """Nothing unplaced shares time with buffer i, so that its place cannot be at fault."""
    waiting = 0
    for k in range(q.near_at[i], q.near_at[i + 1]):
        waiting += not q.placed[q.near[k]]
    return waiting == 0


def preferences(start: np.ndarray, stop: np.ndarray, size: np.ndarray) -> list[np.ndarray]:
    """Static orders by length, area, crowding, size and end, each of two keys; none twice.

    Which of them leads to a solution at once differs from file to file, so there are many.
    """
    times = np.unique(np.concatenate([start, stop]))
    first, last = np.searchsorted(times, start), np.searchsorted(times, stop)
    change = np.zeros(len(times) + 1, np.int64)
    np.add.at(change, first, size)
    np.add.at(change, last, -size)
    load = np.cumsum(change)
    crowd = np.array([load[a:b].max(initial=0) for a, b in zip(first, last, strict=True)])
    width, area = stop - start, (stop - start) * size
    pairs = [
        (stop, width), (crowd, width), (area, crowd), (crowd, area), (width, area), (stop, size),
        (-start, size), (area, size), (stop, area), (-start, width), (width, crowd), (size, stop),
    ]  # fmt: skip
    found: dict[bytes, np.ndarray] = {}
    for one, two in pairs:
        order = np.lexsort((-area, -two, -one))
        found.setdefault(order.tobytes(), order)
    return list(found.values())


def branch_and_bound(
    start: np.ndarray, stop: np.ndarray, size: np.ndarray, capacity: int, effort: float
) -> np.ndarray | None:
    """Offsets of at most `capacity` bytes, None where none was found within `effort`.

    The orders take turns, forwards and backwards in time, with a growing share of the work.

    Args:
      start, stop: lifetimes, half-open, none empty.  size: bytes.
      effort: millions of touched sections.
    """
    share, spent = max(2.0, 1e-4 * len(size) ** 2), 0.0
    ways = [(start, stop), (-stop, -start)]
    while spent < effort:
        for begin, end in ways:
            for order in preferences(begin, end, size):
                q = new_search(begin, end, size, order)
                q.work[1] = int(min(share, effort - spent) * 1e6)
                if fits(q, capacity):
                    offsets = np.zeros(len(size), np.int64)
                    offsets[order] = q.low
                    return offsets
                if q.work[0] <= q.work[1]:
                    return None
                spent += q.work[0] / 1e6
                if spent >= effort:
                    return None
        share *= 6
    return None
