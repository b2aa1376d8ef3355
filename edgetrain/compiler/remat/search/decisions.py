"""Translates a schedule into decisions that come close to it."""

from collections.abc import Sequence

import numpy as np

from ...profile import distinct
from ..problem import Problem
from .flat_problem import flatten


def decisions(problem: Problem, schedule: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Base order and sorted drops that come close to a schedule.

    First runs make the base order; each later run drops the values its step writes, just before the
    next first run. Recomputation then happens on demand, so the translation may be better than
    the schedule, and rarely worse.
    """
    flat, steps = flatten(problem), np.array(schedule, np.int64)
    firsts = np.sort(np.unique(steps, return_index=True)[1])
    again = np.ones(len(steps), np.bool_)
    again[firsts] = False
    again[firsts[-1] + 1 :] = False
    behind = np.flatnonzero(again)
    runs, following = steps[behind], steps[firsts[np.searchsorted(firsts, behind)]]
    counts = (flat.write_at[1:] - flat.write_at[:-1])[runs]
    before = np.cumsum(counts) - counts
    places = np.arange(counts.sum()) + np.repeat(flat.write_at[runs] - before, counts)
    keys = np.repeat(following, counts) * len(problem.nbytes) + flat.write[places]
    return steps[firsts], distinct(keys)
