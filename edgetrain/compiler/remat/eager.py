"""Seeds that forget: every value is dropped wherever it would lie idle for long.

A drop makes its value be computed again from values that are then idle for long themselves, so
one round after another adds drops until nothing is left idle: recomputation of several levels,
which adding single drops to a cheap schedule does not reach, because it pays only as a whole.
"""

from collections.abc import Iterator

import numpy as np

from . import engine
from .packed import Packed

HORIZONS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # steps of the base order
LONG = 2500  # from so many steps on, every other horizon
_ROUNDS = 30


def forgetful(
    packed: Packed, room: int, trace: engine.Trace
) -> Iterator[tuple[int, float, np.ndarray]]:
    """(peak bytes, extra cost, drops) of each round, for several ideas of long and of large.

    Args:
      packed: the problem; its own order is the base order.
      room: the most drops of interest.
      trace: scratch of the evaluations.
    """
    for horizon in HORIZONS if len(packed.cost) <= LONG else HORIZONS[::2]:
        for least in (1, int(packed.size.max(initial=0)) // 20):
            yield from _rounds(packed, room, trace, horizon, least)


def _rounds(
    packed: Packed, room: int, trace: engine.Trace, horizon: int, least: int
) -> Iterator[tuple[int, float, np.ndarray]]:
    order = np.arange(len(packed.cost))
    drops = np.zeros(0, np.int64)
    for _ in range(_ROUNDS):
        count = len(drops)
        got = engine.evaluate(packed, order, drops, count, engine.INFEASIBLE, trace)
        if got[2] >= engine.INFEASIBLE:
            return
        used = drops[trace.used[:count]]
        yield got[2], got[4], used
        drops = np.union1d(used, _idle(packed, trace, got[1], horizon, least))
        if len(drops) == len(used) or len(drops) > room:
            return


def _idle(
    packed: Packed, trace: engine.Trace, touches: int, horizon: int, least: int
) -> np.ndarray:
    """Drops of the values of `least` bytes or more that idle for `horizon` steps or more."""
    before = np.flatnonzero(trace.touch_next[:touches] >= 0)
    after = trace.touch_next[before]
    value = trace.touch_value[before]
    time = trace.touch_time[before]
    idle = trace.touch_time[after] - time >= horizon
    chosen = idle & (packed.maker[value] >= 0) & (packed.size[value] >= least)
    return (time[chosen] + 1) * len(packed.size) + value[chosen]
