"""Checks a placement pair by pair. Deliberately quadratic; shares no code with the solvers."""

from collections.abc import Sequence

from edgetrain.errors import UsageError

from .problem import Buffer


class PlacementError(UsageError):
    """Two buffers overlap, or one is outside the arena."""


def validate(
    buffers: Sequence[Buffer],
    offsets: Sequence[int],
    *,
    capacity: int | None = None,
    align: int = 1,
) -> int:
    """Check a placement; returns its height in bytes.

    Args:
      buffers: lifetimes in steps, nbytes in bytes.
      offsets: in bytes, ordered as `buffers`.
      capacity: bytes of the arena; None: unlimited.
      align: alignment of offsets.
    Raises:
      PlacementError: names the first buffer or pair that breaks a rule.
    """
    if len(offsets) != len(buffers):
        raise PlacementError(f"placement: found {len(offsets)} offsets for {len(buffers)} buffers")
    height = 0
    for k, (a, offset) in enumerate(zip(buffers, offsets, strict=True)):
        if offset < 0 or offset % align:
            raise PlacementError(f"buffer {a.id}: offset {offset} is not a multiple of {align}")
        height = max(height, offset + a.nbytes)
        if capacity is not None and offset + a.nbytes > capacity:
            raise PlacementError(
                f"buffer {a.id} ends at byte {offset + a.nbytes}, but the arena has "
                f"{capacity} bytes"
            )
        for b, bt in zip(buffers[:k], offsets[:k], strict=True):
            together = a.start < b.stop and b.start < a.stop
            if together and offset < bt + b.nbytes and bt < offset + a.nbytes:
                raise PlacementError(
                    f"buffers {b.id} and {a.id} overlap in bytes "
                    f"[{max(offset, bt)}, {min(offset + a.nbytes, bt + b.nbytes)}) at step "
                    f"{max(a.start, b.start)}"
                )
    return height
