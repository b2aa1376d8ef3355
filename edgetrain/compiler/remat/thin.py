"""Thin out decisions: drops that a larger budget does not need are taken back, compiled.

Annealing adds drops until a budget holds and seldom finds its way from many drops to few: where
one point of the archive needs little memory and much work, and the next one the reverse, nothing
lies between them. Thinning starts from the former and takes back whole stretches of drops, then
halves of them and so on to single ones, wherever the peak stays within a budget between the two.
"""

import numpy as np

from edgetrain.kernels.jit import hot

from .anneal import random
from .archive import offer
from .engine import evaluate


@hot
def thin(p, t, archive, start, budget, work):
    """Take back drops of one point of the archive within `budget` bytes; offers what it finds.

    Args:
      p: Packed.  t: Trace.  archive: receives every improvement.
      start: index of a point whose peak is at most the budget.
      work: steps to evaluate, one evaluation more at most.
    Returns:
      Steps evaluated.
    """
    row = archive.row[start]
    order, count = archive.order[row].copy(), archive.dropped[row]
    drops, trial = archive.drops[row].copy(), archive.drops[row].copy()
    least, done = archive.extra[start], 0.0
    block = max(1, count // 2)
    while block >= 1 and done < work:
        at = 0
        while at < count and done < work:
            stop = min(count, at + block)
            n = count - (stop - at)
            trial[:at] = drops[:at]
            trial[at:n] = drops[stop:count]
            got = evaluate(p, order, trial, n, budget, t)
            done += 60 + got[0]
            if got[2] <= budget and got[4] < least:
                least, count = got[4], 0
                for k in range(n):
                    if t.used[k]:
                        drops[count] = trial[k]
                        count += 1
                offer(archive, got[2], least, order, drops, count)
            else:
                at = stop
        block //= 2
    return done


@hot
def fill(p, t, archive, work, state):
    """Thin between points of the archive that lie far apart, until `work` steps are evaluated.

    Args:
      p: Packed.  t: Trace.  archive: as for `thin`.  state: random state.
    Returns:
      Steps evaluated.
    """
    done = 0.0
    while done < work and archive.filled[0] > 1:
        best, chosen = -1.0, 0
        for k in range(archive.filled[0] - 1):
            gap = np.log(archive.peak[k + 1] / max(archive.peak[k], 1))
            worth = gap * (archive.extra[k] - archive.extra[k + 1]) * random(state)
            if worth > best:
                best, chosen = worth, k
        low, high = archive.peak[chosen], archive.peak[chosen + 1]
        budget = low + np.int64((high - low) * random(state))
        start = chosen if random(state) < 0.5 else int(random(state) * chosen)
        done += 60 + thin(p, t, archive, start, budget, work - done)
    return done
