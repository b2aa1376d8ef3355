"""The vocabulary of placement: buffers with half-open lifetimes, offsets in bytes."""

from collections.abc import Sequence
from dataclasses import dataclass


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
    change: dict[int, int] = {}
    for buffer in buffers:
        if buffer.stop > buffer.start:
            size = aligned(buffer.nbytes, align)
            change[buffer.start] = change.get(buffer.start, 0) + size
            change[buffer.stop] = change.get(buffer.stop, 0) - size
    live = peak = 0
    for step in sorted(change):
        live += change[step]
        peak = max(peak, live)
    return peak
