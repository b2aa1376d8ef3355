"""A run's position in its passes over the data."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import UsageError


class EndOfPass(Exception):  # noqa: N818 - not an error
    """The pass has no more batches."""


@dataclass
class Position:
    """A run's position in its passes over the data, and totals of the current epoch.

    Attributes:
      epoch, done: finished passes, and steps in the current one (for data in batches).
      ended: an epoch has ended, but callbacks are still to be called.
      loss, counted: sum and number of the epoch's losses so far, without skipped steps and
        non-finite losses.
      skipped: skipped steps of the epoch so far.
    """

    epoch: int = 0
    done: int = 0
    ended: bool = False
    loss: float = 0.0
    counted: int = 0
    skipped: int = 0

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> "Position":
        """Restore the result of `to_json`; a non-finite sum restarts at 0."""
        position = cls(**found)
        if position.loss is None or not math.isfinite(position.loss):
            position.loss, position.counted = 0.0, 0
        return position

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def add(self, loss: float, skipped: bool) -> None:
        """Add a step and its loss."""
        self.done, self.skipped = self.done + 1, self.skipped + skipped
        if not skipped and math.isfinite(loss):
            self.loss, self.counted = self.loss + loss, self.counted + 1

    def end_pass(self) -> None:
        """End a pass over the data.

        Raises:
          UsageError: the pass had no batches.
        """
        if not self.done:
            raise UsageError("fit: the data returned no batches. Pass data with samples.")
        self.epoch, self.done, self.ended = self.epoch + 1, 0, True

    def stop(self, length: int | None) -> None:
        """A callback ended `fit`: if the data can't count its batches, the next call starts a new
        pass."""
        if length is None and self.done:
            self.epoch, self.done = self.epoch + 1, 0

    @property
    def mean(self) -> float:
        """The epoch's mean loss so far; NaN before the first counted step."""
        return self.loss / self.counted if self.counted else math.nan

    def close(self) -> None:
        """Start the next epoch, after callbacks were called."""
        self.ended, self.loss, self.counted, self.skipped = False, 0.0, 0, 0
