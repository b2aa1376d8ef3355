"""Hill climbing on the order of greedy placement, compiled.

It finds the best placement of some dozens of buffers in milliseconds, before exact search, and
improves on exact searches that did not finish. A move costs one greedy placement: n^2 / 4
comparisons for n buffers, or twice the number of pairs that share time. It stops at the goal or
when work runs out.
"""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import Flags, Ints, Words

from .greedy import NO_LIMIT, crowded, fill_in_order
from .lives import Lives
from .units import GREEDY


class Climb(NamedTuple):
    """Workspace of a climb: the order, the best and the trial offsets, and scratch for filling."""

    order: Ints
    best: Ints
    trial: Ints
    placed: Flags
    queue: Ints


def hill_climb(
    lives: Lives,
    size: np.ndarray,
    order: np.ndarray,
    goal: int,
    work: int,
    seed: int,
) -> tuple[np.ndarray, int]:
    """Improve an order until the height reaches `goal` or `work` comparisons are done.

    One move takes a buffer that ends at the top, or shares time with one, and places it earlier;
    moves that do not raise the height are kept.

    Returns:
      (offsets in bytes, height in bytes).
    """
    best, trial, queue = (np.zeros(len(order), np.int64) for _ in range(3))
    scratch = Climb(order.copy(), best, trial, np.zeros(len(order), np.bool_), queue)
    state = np.array([seed * 0x9E3779B97F4A7C15 % 2**64], np.uint64)
    height = climb(lives, size, scratch, goal, work, state)
    return scratch.best, height


@loop
def move_work(lives, count):
    """Comparisons per move with `count` buffers."""
    return count * count // 4 + count if crowded(lives) else 2 * lives.near.size + count


@loop
def _below(state, n):
    """A random number in 0 .. n - 1 (xorshift)."""
    x = state[0]
    x ^= (x << np.uint64(13)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    x ^= x >> np.uint64(7)
    x ^= (x << np.uint64(17)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    state[0] = x
    return np.int64((x >> np.uint64(11)) % np.uint64(n))


@GREEDY.entry
def climb(lives: Lives, size: Ints, scratch: Climb, goal: int, work: int, state: Words) -> int:
    """Like `hill_climb`, with the result in `scratch.best`; returns the height."""
    order, best, trial = scratch.order, scratch.best, scratch.trial
    n = order.size
    turn = move_work(lives, n)
    height = fill_in_order(lives, size, order, best, scratch.placed, scratch.queue, 0, 0, NO_LIMIT)
    done = 0
    while height > goal and done < work:
        done += turn
        chosen = _chosen(lives, size, order, best, height, state)
        to = _below(state, n) if chosen == 0 else _below(state, chosen)
        moved = order[chosen]
        way = 1 if to > chosen else -1
        for k in range(chosen, to, way):
            order[k] = order[k + way]
        order[to] = moved
        reached = fill_in_order(
            lives, size, order, trial, scratch.placed, scratch.queue, 0, 0, height
        )
        if reached <= height:
            height = reached
            for k in range(n):
                best[k] = trial[k]
        else:
            for k in range(to, chosen, -way):
                order[k] = order[k - way]
            order[chosen] = moved
    return height


@loop
def _chosen(lives, size, order, best, height, state):
    """Position in the order of a buffer at the top, or of one that shares time with it."""
    n, tops, chosen = order.size, 0, 0
    for k in range(n):
        if best[order[k]] + size[order[k]] == height:
            tops += 1
            if _below(state, tops) == 0:
                chosen = k
    if _below(state, 2) == 0:
        near = order[chosen]
        for _ in range(20):
            k = _below(state, n)
            j = order[k]
            if lives.start[j] < lives.stop[near] and lives.start[near] < lives.stop[j]:
                return k
    return chosen
