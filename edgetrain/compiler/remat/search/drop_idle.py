"""Seeds from dropping what idles: every value is dropped wherever it would lie idle for long.

A drop makes its value be computed again from values that are then idle for long themselves, so
one round after another adds drops until nothing is left idle: recomputation of several levels,
which adding single drops to a cheap schedule does not reach, because it pays only as a whole.
It costs an evaluation for each round, some hundreds in all, whatever the effort.
"""

from collections.abc import Iterator

import numpy as np

from .evaluate import INFEASIBLE, Trace, evaluate
from .flat_problem import FlatProblem

HORIZONS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # steps of the base order
LONG = 2500  # from so many steps on, every other horizon
_ROUNDS = 30


def drop_idle(
    flat: FlatProblem, room: int, trace: Trace
) -> Iterator[tuple[int, float, np.ndarray]]:
    """(peak bytes, extra cost, drops) of each round, for several ideas of long and of large.

    Args:
      flat: the problem; its own order is the base order.
      room: the most drops of interest.
      trace: scratch of the evaluations.
    """
    for horizon in HORIZONS if len(flat.cost) <= LONG else HORIZONS[::2]:
        for least in (1, int(flat.size.max(initial=0)) // 20):
            yield from _rounds(flat, room, trace, horizon, least)


def _rounds(
    flat: FlatProblem, room: int, trace: Trace, horizon: int, least: int
) -> Iterator[tuple[int, float, np.ndarray]]:
    order = np.arange(len(flat.cost))
    drops = np.zeros(0, np.int64)
    for _ in range(_ROUNDS):
        count = len(drops)
        got = evaluate(flat, order, drops, count, INFEASIBLE, trace)
        if got.peak >= INFEASIBLE:
            return
        used = drops[trace.used[:count]]
        yield got.peak, got.extra, used
        drops = np.sort(np.concatenate([used, _idle(flat, trace, got.touches, horizon, least)]))
        drops = drops[np.diff(drops, prepend=-1) > 0]
        if len(drops) == len(used) or len(drops) > room:
            return


def _idle(flat: FlatProblem, trace: Trace, touches: int, horizon: int, least: int) -> np.ndarray:
    """Drops of the values of `least` bytes or more that idle for `horizon` steps or more."""
    before = np.flatnonzero(trace.touch_next[:touches] >= 0)
    after = trace.touch_next[before]
    value = trace.touch_value[before]
    time = trace.touch_time[before]
    idle = trace.touch_time[after] - time >= horizon
    chosen = idle & (flat.maker[value] >= 0) & (flat.size[value] >= least)
    return (time[chosen] + 1) * len(flat.size) + value[chosen]
