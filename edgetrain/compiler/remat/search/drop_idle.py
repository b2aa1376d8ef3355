"""Seeds that drop every value wherever it would be idle for long.

Dropping a value makes others idle that are needed to recompute it, so rounds add drops until
nothing is left idle. The result is multi-level recomputation, which adding single drops to a cheap
schedule does not reach because it pays only as a whole. It costs one evaluation per round, some
hundreds in all, whatever the effort.
"""

from collections.abc import Iterator

import numpy as np

from .evaluate import INFEASIBLE, Trace, evaluate
from .flat_problem import FlatProblem

HORIZONS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # steps of the base order
LONG = 2500  # with more steps than this, every other horizon
_ROUNDS = 30


def drop_idle(
    flat: FlatProblem, room: int, trace: Trace
) -> Iterator[tuple[int, float, np.ndarray]]:
    """(peak bytes, extra cost, drops) of each round, for several idle horizons and least sizes.

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
    """Drops of values with at least `least` bytes that are idle for at least `horizon` steps."""
    before = np.flatnonzero(trace.touch_next[:touches] >= 0)
    after = trace.touch_next[before]
    value = trace.touch_value[before]
    time = trace.touch_time[before]
    idle = trace.touch_time[after] - time >= horizon
    chosen = idle & (flat.maker[value] >= 0) & (flat.size[value] >= least)
    return (time[chosen] + 1) * len(flat.size) + value[chosen]
