"""Branch and bound for one capacity: does a placement fit, and which?

Buffers are placed from the bottom up, each at the lowest offset that earlier ones allow, so every
stacking is visited once. A node is pruned if a time section can't hold its remaining buffers, or if
an unplaced buffer would fit below the next one. The rest splits into parts that share no time; they
are searched one by one, and the remaining buffers of a part may be reordered, most crowded first.

Source: Moffitt 2023, MiniMalloc (canonical solutions, section inference, dynamic decomposition).
Known limit: exponential; a run is bounded by its allowed work.
"""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import Flags, IntRows32, Ints, Words

from .units import EXACT

DONE, ALLOWED, TRAIL = 0, 1, 2  # places in `Search.work`


class Search(NamedTuple):
    """State of a search; buffers are numbered by preference.

    A section is the time up to the next end of a buffer, so buffers that share time share a
    section. A frame is a part whose next buffer is being chosen.

    Attributes:
      first, last: sections [first, last) in which each buffer is live.
      size: bytes.  near_at, near: the buffers that share a section with each.
      low: lowest offset still open to each; the final offset once placed.
      placed: whether low is final.
      floor, release, queue: scratch for each section, each buffer, and buffers in order.
      trail_buffer, trail_low: what to restore when a node is abandoned.
      rows, held: members of each frame's part, in order, and their number.
      picks, picked, next_pick: places in the row that may come next, their number, the next one.
      parent, beyond: the frame whose placement split the part off; the first section after it.
      least, gate: offset of the previous placement; members of the row that precede it in order.
      mark, sign: length of the trail when a frame was opened; hash of its search state.
      failed: hashes of states known to lead nowhere.
      work: sections touched so far, and how many are allowed; length of the trail.
    """

    first: Ints
    last: Ints
    size: Ints
    near_at: Ints
    near: Ints
    low: Ints
    placed: Flags
    floor: Ints
    release: Ints
    queue: Ints
    trail_buffer: Ints
    trail_low: Ints
    rows: IntRows32
    picks: IntRows32
    held: Ints
    picked: Ints
    next_pick: Ints
    parent: Ints
    beyond: Ints
    least: Ints
    gate: Ints
    mark: Ints
    sign: Words
    failed: Words
    work: Ints


@loop
def _place(q, i):
    """Place buffer i at its lowest offset, and push up the buffers that share time with it."""
    q.placed[i] = True
    top = q.low[i] + q.size[i]
    trail = q.work[TRAIL]
    for k in range(q.near_at[i], q.near_at[i + 1]):
        j = q.near[k]
        if not q.placed[j] and q.low[j] < top:
            q.trail_buffer[trail] = j
            q.trail_low[trail] = q.low[j]
            trail += 1
            q.low[j] = top
    q.trail_buffer[trail] = -1 - i
    q.work[TRAIL] = trail + 1


@loop
def _undo(q, mark):
    trail = q.work[TRAIL]
    while trail > mark:
        trail -= 1
        j = q.trail_buffer[trail]
        if j >= 0:
            q.low[j] = q.trail_low[trail]
        else:
            q.placed[-1 - j] = False
    q.work[TRAIL] = trail


@loop
def _holds(q, members, least, gate, capacity):
    """Whether every section can hold its unplaced buffers.

    A buffer that would fit only below the last placement must rest on one still to be placed. Each
    section is then a machine whose jobs are released at their lowest offsets.
    """
    count = 0
    for index, i in enumerate(members):
        if q.placed[i]:
            continue
        low = q.low[i]
        if low < least or (low == least and index < gate):
            low = capacity
            for k in range(q.near_at[i], q.near_at[i + 1]):
                j = q.near[k]
                if not q.placed[j]:
                    low = min(low, max(q.low[j], least) + q.size[j])
            q.work[DONE] += q.near_at[i + 1] - q.near_at[i]
        if low + q.size[i] > capacity:
            return False
        q.release[i] = low
        k = count
        while k > 0 and q.release[q.queue[k - 1]] > low:
            q.queue[k] = q.queue[k - 1]
            k -= 1
        q.queue[k] = i
        q.work[DONE] += q.last[i] - q.first[i] + count - k + 4
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


@loop
def _split(q, f, left, top):
    """Open frame `top` for the unplaced members of frame f that share time, directly or through
    others, with section `left` or the next section that has any; False if there are none.
    """
    members, into = q.rows[f][: q.held[f]], q.rows[top]
    pick = q.next_pick[f] - 1
    start, unplaced = q.floor.size, 0
    for i in members:
        if not q.placed[i] and q.first[i] >= left:
            start = min(start, q.first[i])
            unplaced += 1
    if unplaced == 0:
        return False
    end, grown = start, True
    while grown:
        grown = False
        for i in members:
            near = q.first[i] == start or start < q.first[i] < end
            if near and not q.placed[i] and q.last[i] > end:
                end = q.last[i]
                grown = True
    result = gate = 0
    for index, i in enumerate(members):
        if not q.placed[i] and q.first[i] >= start and q.first[i] < end:
            into[result] = i
            result += 1
            gate += pick >= 0 and index < q.picks[f, pick]
    q.held[top], q.parent[top], q.beyond[top] = result, f, end
    q.least[top] = q.low[members[q.picks[f, pick]]] if pick >= 0 else 0
    q.gate[top] = gate
    return True


@loop
def _crowd(q, f):
    """Order frame f's row by the bytes left in the fullest section of each member, most first."""
    members = q.rows[f][: q.held[f]]
    for i in members:
        for s in range(q.first[i], q.last[i]):
            q.floor[s] = 0
    for i in members:
        for s in range(q.first[i], q.last[i]):
            q.floor[s] += q.size[i]
    for i in members:
        most = np.int64(0)
        for s in range(q.first[i], q.last[i]):
            most = max(most, q.floor[s])
        q.release[i] = -most * q.size.size + i
    gap = members.size // 2
    while gap > 0:
        for k in range(gap, members.size):
            i, index = members[k], k
            while index >= gap and q.release[members[index - gap]] > q.release[i]:
                members[index] = members[index - gap]
                index -= gap
            members[index] = i
        gap //= 2
    q.gate[f] = 0


@loop
def _signature(q, f):
    """Hash of everything the rest of the search in frame f depends on; never 0."""
    h = np.uint64(0)
    least, gate = q.least[f], q.gate[f]
    for k in range(q.held[f]):
        i = q.rows[f, k]
        low = q.low[i]
        barred = low < least or (low == least and k < gate)
        x = (np.uint64(low) * np.uint64(2) + np.uint64(barred)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(29))) + np.uint64(i + 1) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
        h += x ^ (x >> np.uint64(31))
    return h | np.uint64(1)


@loop
def _rank(q, f):
    """Fill frame f's picks: members that may come next, by offset, then by preference.

    If a buffer would leave room below it for another one, the other one comes first.
    """
    members, picks = q.rows[f], q.picks[f]
    least, gate = q.least[f], q.gate[f]
    ceiling, count = np.int64(2**62), 0
    for k in range(q.held[f]):
        i = members[k]
        ceiling = min(ceiling, q.low[i] + q.size[i])
    for k in range(q.held[f]):
        low = q.low[members[k]]
        if low < ceiling and (low > least or (low == least and k >= gate)):
            j = count
            while j > 0 and q.low[members[picks[j - 1]]] > low:
                picks[j] = picks[j - 1]
                j -= 1
            picks[j] = k
            count += 1
    q.sign[f] = _signature(q, f)
    q.work[DONE] += q.held[f]
    if q.failed[q.sign[f] % np.uint64(q.failed.size)] == q.sign[f]:
        count = 0
    q.picked[f], q.next_pick[f], q.mark[f] = count, 0, q.work[TRAIL]


@loop
def _open(q, top, crowded):
    """Open frame top + 1 for the rest of `top`, or for the next part of an ancestor.

    Returns:
      False if everything is placed.
    """
    f, left = top, np.int64(0)
    while not _split(q, f, left, top + 1):
        f, left = q.parent[f], q.beyond[f]
        if f < 0:
            return False
    if crowded and q.held[top + 1] < q.held[f] - 1:
        _crowd(q, top + 1)
    _rank(q, top + 1)
    return True


@EXACT.entry
def fits(q: Search, capacity: int, crowded: int) -> int:
    """Place all buffers within `capacity` bytes; 0 if that failed or work ran out.

    Each frame has one part. If none of its picks works, the search backtracks to the frame whose
    placement split the part off, skipping unrelated parts. Frame 0 has all buffers and places none.
    """
    for i in range(q.size.size):
        q.rows[0, i] = i
    q.held[0], q.parent[0] = q.size.size, -1
    if crowded:
        _crowd(q, 0)
    if not _open(q, 0, crowded):
        return 1
    top = 1
    while top > 0 and q.work[DONE] <= q.work[ALLOWED]:
        if q.work[TRAIL] > q.mark[top]:
            _undo(q, q.mark[top])
            if _alone(q, q.rows[top, q.picks[top, q.next_pick[top] - 1]]):
                q.next_pick[top] = q.picked[top]
        if q.next_pick[top] == q.picked[top]:
            q.failed[q.sign[top] % np.uint64(q.failed.size)] = q.sign[top]
            top = q.parent[top]
            continue
        index = q.picks[top, q.next_pick[top]]
        i = q.rows[top, index]
        q.next_pick[top] += 1
        _place(q, i)
        if _holds(q, q.rows[top][: q.held[top]], q.low[i], index, capacity):
            if not _open(q, top, crowded):
                return 1
            top += 1
    return 0


@loop
def _alone(q, i):
    """Whether no unplaced buffer shares time with buffer i, so its offset can't cause a failure."""
    waiting = 0
    for k in range(q.near_at[i], q.near_at[i + 1]):
        waiting += not q.placed[q.near[k]]
    return waiting == 0
