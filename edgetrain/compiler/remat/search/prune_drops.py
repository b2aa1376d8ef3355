"""Takes back drops that a larger budget does not need; compiled.

Annealing adds drops until a budget holds and seldom gets from many drops to few. If one point of
the archive needs little memory and much work, and the next one the reverse, there is nothing in
between. Pruning starts from the former and takes back whole stretches of drops, then halves of them
and so on down to single ones, wherever the peak stays within a budget between the two. One pass
over d drops costs about 2 d evaluations, fewer if whole stretches can be taken back.
"""

import numpy as np

from edgetrain.kernels.loops.functions import loop
from edgetrain.kernels.loops.kinds import ZERO, Words

from .anneal import EVALUATE_WORK, Walk, copy
from .archive import Archive, offer
from .evaluate import Trace, evaluate
from .flat_problem import FlatProblem
from .moves import random
from .units import SEARCH


@SEARCH.entry
def prune_drops(
    p: FlatProblem, t: Trace, archive: Archive, walk: Walk, start: int, budget: int, work: float
) -> float:
    """Take back drops of one point of the archive within `budget` bytes; offers all improvements.

    Args:
      t, walk: scratch.  archive: receives every improvement.
      start: index of a point whose peak is at most the budget.
      work: steps to evaluate, exceeded by at most one evaluation.
    Returns:
      Steps evaluated.
    """
    row = archive.row[start]
    count, least, done = archive.dropped[row], archive.extra[start], 0.0
    order, drops, trial = walk.order, walk.drops, walk.next_drops
    for j in range(order.size):
        order[j] = archive.order[row, j]
    for j in range(count):
        drops[j] = archive.drops[row, j]
    block = max(1, count // 2)
    while block >= 1 and done < work:
        offset = ZERO
        while offset < count and done < work:
            stop = min(count, offset + block)
            n = count - (stop - offset)
            copy(drops, trial, offset)
            for j in range(offset, n):
                trial[j] = drops[j + stop - offset]
            got = evaluate(p, order, trial, n, budget, t)
            done += EVALUATE_WORK + got.length
            if got.peak <= budget and got.extra < least:
                least, count = got.extra, ZERO
                for k in range(n):
                    if t.used[k]:
                        drops[count] = trial[k]
                        count += 1
                offer(archive, got.peak, least, order, drops, count)
            else:
                offset = stop
        block //= 2
    return done


@SEARCH.entry
def prune_between(
    p: FlatProblem, t: Trace, archive: Archive, walk: Walk, work: float, state: Words
) -> float:
    """Prune between points of the archive that are far apart, until `work` steps are evaluated.

    Arguments as for `prune_drops`; `state` is that of the random numbers. Returns steps evaluated.
    """
    done = 0.0
    while done < work and archive.filled[0] > 1:
        chosen = _far_apart(archive, state)
        low, high = archive.peak[chosen], archive.peak[chosen + 1]
        budget = low + int((high - low) * random(state))
        start = chosen
        if random(state) >= 0.5:
            start = int(random(state) * chosen)
        done += EVALUATE_WORK + prune_drops(p, t, archive, walk, start, budget, work - done)
    return done


@loop
def _far_apart(archive, state):
    """A point whose successor is far from it in peak and cost, weighted by a random number each."""
    best, farthest = ZERO, -1.0
    for k in range(archive.filled[0] - 1):
        apart = np.log(archive.peak[k + 1] / max(archive.peak[k], 1))
        apart = apart * (archive.extra[k] - archive.extra[k + 1]) * random(state)
        if apart > farthest:
            best, farthest = k, apart
    return best
