"""Hill climbing on the order of greedy placement, compiled: for what exact search leaves open."""

import numpy as np

from edgetrain.kernels.jit import hot

from .greedy import place_in_order


@hot
def climb(start, stop, size, order, goal, work, seed):
    """Improve an order until the height reaches `goal` or `work` comparisons are done.

    One move takes a buffer that ends at the top, or shares time with one, and places it earlier;
    moves that do not raise the height are kept.

    Returns:
      (offsets in bytes, height in bytes).
    """
    np.random.seed(seed)
    n = order.size
    order = order.copy()
    best, trial = np.zeros(n, np.int64), np.zeros(n, np.int64)
    height = place_in_order(start, stop, size, order, best, False)
    done = 0
    while height > goal and done < work:
        done += n * n // 4 + n
        tops = 0
        chosen = 0
        for k in range(n):
            if best[order[k]] + size[order[k]] == height:
                tops += 1
                if np.random.randint(tops) == 0:
                    chosen = k
        if np.random.random() < 0.5:
            near = order[chosen]
            for _ in range(20):
                k = np.random.randint(n)
                if start[order[k]] < stop[near] and start[near] < stop[order[k]]:
                    chosen = k
                    break
        to = np.random.randint(n) if chosen == 0 else np.random.randint(chosen)
        moved = order[chosen]
        way = 1 if to > chosen else -1
        for k in range(chosen, to, way):
            order[k] = order[k + way]
        order[to] = moved
        reached = place_in_order(start, stop, size, order, trial, False)
        if reached <= height:
            height = reached
            best[:] = trial
        else:
            for k in range(to, chosen, -way):
                order[k] = order[k - way]
            order[chosen] = moved
    return best, height
