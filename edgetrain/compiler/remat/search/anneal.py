"""Searches decisions for a ladder of budgets by annealing on the simulated peak; compiled.

A move adds, removes, exchanges or shifts drops, or moves a step of the base order. Additions
target values that are idle across a position above the budget. Every state that is not dominated
enters the archive, whatever budget it was found for. Work is counted in evaluated steps, so a
result depends only on effort and seed. Most moves are rejected without evaluation, at a tenth of
its cost.
"""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import Floats, Ints, Words

from .archive import Archive, offer
from .evaluate import INFEASIBLE, Trace, evaluate
from .flat_problem import FlatProblem
from .moves import Moves, mutate, random
from .units import SEARCH

EFFECTS = 15  # predicted for one move, at most
UNFORESEEN = 0.1  # share of the moves that look bad but are evaluated all the same
# Work of a move that does nothing, of a move rejected without evaluation (plus a share per step of
# the schedule), and of an evaluation (plus 1 per step).
IDLE_WORK, GUESS_WORK, GUESS_SHARE, EVALUATE_WORK = 40, 30, 0.1, 60
OVER_WEIGHT = 0.3  # weight of the mean bytes above the budget, relative to the peak's
LADDER = 0.94  # ratio of successive budgets of a descent
REACHABLE = 1.02  # a descent starts from points this far above its budget
FAILURES = 3  # a descent ends after missing this many budgets in a row
DESCENT_PARTS, DESCENT_WORK = 24, 8  # anneals in a descent's work; a descent's limit, in its work
GOLDEN = 0.6180339887498949


class Temper(NamedTuple):
    """First temperature, in mean costs of one drop; last over first; weight of excess bytes."""

    warm: float
    cool: float
    steep: float


class Walk(NamedTuple):
    """Scratch of one walk: the current decisions, and those after the next move.

    `expected[0]` effects of that move are predicted: bytes that come (or go) on positions
    [effect_start, effect_stop), and extra cost; UNKNOWN: the move is too large to predict.
    """

    order: Ints
    place: Ints
    drops: Ints
    next_order: Ints
    next_place: Ints
    next_drops: Ints
    profile: Ints
    expected: Ints
    effect_start: Ints
    effect_stop: Ints
    effect_nbytes: Ints
    effect_cost: Floats


def new_walk(steps: int, drops: int, longest: int) -> Walk:
    """Scratch for `steps` steps, at most `drops` drops and schedules of `longest` steps."""
    sizes = (steps, steps, drops, steps, steps, drops, longest + 3, 1, *[EFFECTS] * 3)
    arrays = [np.zeros(size, np.int64) for size in sizes]
    return Walk(*arrays, np.zeros(EFFECTS))  # type: ignore[call-arg]


@loop
def copy(source, to, count):
    """Copy the first `count` elements of an array."""
    for j in range(count):
        to[j] = source[j]


@loop
def _guess(t, walk, length, budget):
    """Peak, excess and extra cost predicted from the expected effects alone."""
    scratch = walk.profile
    copy(t.profile, scratch, length)
    extra = 0.0
    for k in range(walk.expected[0]):
        extra += walk.effect_cost[k]
        # A gap that ends before it begins has no effect.
        for position in range(max(0, walk.effect_start[k]), min(length, walk.effect_stop[k])):
            scratch[position] += walk.effect_nbytes[k]
    peak, over = np.int64(0), np.int64(0)
    for position in range(length):
        peak = max(peak, scratch[position])
        over += max(np.int64(0), scratch[position] - budget)
    return peak, over / max(budget, 1), extra


@loop
def _settle(drops, count, t, to):
    """Copy the drops that had an effect, and compact the trace's notes about them."""
    n = 0
    for k in range(count):
        if t.used[k]:
            to[n] = drops[k]
            t.gap_from[n], t.gap_to[n] = t.gap_from[k], t.gap_to[k]
            n += 1
    return n


@loop
def _energy(peak, extra, excess, length, budget, weight):
    return extra + weight * (max(0.0, peak / budget - 1.0) + OVER_WEIGHT * excess / length)


@loop
def _begin(p, t, points, start, budget, walk):
    """Start from a point; returns its outcome and its number of drops."""
    row, steps = points.row[start], points.order.shape[1]
    count = points.dropped[row]
    for j in range(steps):
        walk.order[j] = points.order[row, j]
        walk.place[walk.order[j]] = j
    for j in range(count):
        walk.drops[j] = points.drops[row, j]
    now = evaluate(p, walk.order, walk.drops, count, budget, t)
    copy(walk.drops, walk.next_drops, count)
    return now, _settle(walk.next_drops, count, t, walk.drops)


@SEARCH.entry
def anneal(
    p: FlatProblem, idle: Moves, one: Trace, other: Trace, archive: Archive, walk: Walk,
    points: Archive, start: int, budget: int, work: float, temper: Temper, state: Words,
) -> float:  # fmt: skip
    """Search around one point for the cheapest schedule within a budget.

    Moves whose predicted effect would be rejected are skipped without evaluation, except one in
    ten.

    Args:
      one, other: scratch.  archive: receives all results.
      points, start: the archive and the index in it to start from.  budget: bytes.  work: steps to
        evaluate.
      state: of the random numbers.
    Returns:
      Steps evaluated.
    """
    t, spare = one, other
    order, next_order = walk.order, walk.next_order
    place, next_place = walk.place, walk.next_place
    drops = walk.next_drops
    now, count = _begin(p, t, points, start, budget, walk)
    scale = (now.extra + 1e-4) / (count + 4)
    weight = temper.steep * (now.extra + 0.02)
    energy = _energy(now.peak, now.extra, now.excess, now.length, budget, weight)
    done = 0.0
    while done < work:
        heat = temper.warm * scale * temper.cool ** (done / work)
        limit = energy - heat * np.log(random(state) + 1e-300)
        copy(order, next_order, order.size)
        copy(place, next_place, order.size)
        copy(walk.drops, drops, count)
        n = mutate(p, idle, next_order, next_place, drops, count, t, now, budget, walk, state)
        if walk.expected[0] == 0:
            done += IDLE_WORK
            continue
        if walk.expected[0] > 0 and random(state) < 1 - UNFORESEEN:
            done += GUESS_WORK + GUESS_SHARE * now.length
            peak, excess, extra = _guess(t, walk, now.length, budget)
            if _energy(peak, now.extra + extra, excess, now.length, budget, weight) > limit:
                continue
        done += EVALUATE_WORK + now.length
        got = evaluate(p, next_order, drops, n, budget, spare)
        if got.peak >= INFEASIBLE:
            continue
        new = _energy(got.peak, got.extra, got.excess, got.length, budget, weight)
        if new <= limit:
            now, energy = got, new
            count = _settle(drops, n, spare, walk.drops)
            order, next_order = next_order, order
            place, next_place = next_place, place
            t, spare = spare, t
            offer(archive, now.peak, now.extra, order, walk.drops, count)
    return done
