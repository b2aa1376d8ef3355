"""The vocabulary of placement: buffers with half-open lifetimes, offsets in bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..profile import profile


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that are live on [start, stop) in steps of a schedule."""

    id: int
    start: int
    stop: int
    nbytes: int


def aligned(nbytes: int, align: int) -> int:
    """The least multiple of `align` that is not below `nbytes`."""
    return -(-nbytes // align) * align


def peak_live(buffers: Sequence[Buffer], align: int = 1) -> int:
    """The largest sum of bytes live at one step: no placement is lower."""
    rows = np.array([(b.start, b.stop, aligned(b.nbytes, align)) for b in buffers], np.int64)
    return profile(*rows.reshape(-1, 3).T).peak
