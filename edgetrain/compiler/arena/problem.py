"""Terms of placement: buffers with half-open lifetimes, offsets in bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..profile import peak


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer live on [start, stop), in steps of a schedule."""

    id: int
    start: int
    stop: int
    nbytes: int


def aligned(nbytes: int, align: int) -> int:
    """`nbytes` rounded up to a multiple of `align`."""
    return -(-nbytes // align) * align


def table_of(buffers: Sequence[Buffer] | np.ndarray, align: int = 1) -> np.ndarray:
    """start, stop and aligned nbytes per buffer, int64 (buffers, 3)."""
    if isinstance(buffers, np.ndarray):
        table = buffers.copy()
    else:
        rows = [(b.start, b.stop, b.nbytes) for b in buffers]
        table = np.array(rows, np.int64).reshape(-1, 3)
    table[:, 2] = aligned(table[:, 2], align)  # type: ignore[arg-type]
    return table


def peak_live(buffers: Sequence[Buffer] | np.ndarray, align: int = 1) -> int:
    """The largest sum of bytes live at a step: a lower bound for any placement."""
    return peak(*table_of(buffers, align).T)
