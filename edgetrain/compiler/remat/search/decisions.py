"""From a schedule to the decisions that come close to it."""

from collections.abc import Sequence

import numpy as np

from ..problem import Problem


def decisions(problem: Problem, schedule: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Base order and sorted drops that come close to a schedule.

    First runs make the base order; each later run drops what the step writes just before the
    next first run. Recomputation then happens on demand, so the translation may be better than
    the schedule, and rarely worse.
    """
    order: list[int] = []
    pending: set[int] = set()
    seen: set[int] = set()
    keys: set[int] = set()
    count = len(problem.nbytes)
    for k in schedule:
        if k in seen:
            pending.update(problem.steps[k].writes)
            continue
        seen.add(k)
        order.append(k)
        keys.update(k * count + v for v in pending)
        pending = set()
    return np.array(order, np.int64), np.array(sorted(keys), np.int64)
