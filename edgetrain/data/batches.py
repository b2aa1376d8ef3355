"""Which samples come next: minibatches cut into microbatches, from a cursor that can be saved."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgetrain.errors import UsageError

from .permute import permuted


@dataclass(frozen=True, order=True)
class Cursor:
    """How far training has come.

    Attributes:
      epoch: passes over the data that are done.
      position: samples of this epoch that are used up; a multiple of the minibatch.
    """

    epoch: int = 0
    position: int = 0


@dataclass(frozen=True)
class Batches:
    """The order of the training samples; it holds no state, so any cursor can be asked for.

    Each epoch is shuffled anew and drops its last partial minibatch.

    Attributes:
      n: samples.
      minibatch: samples of one update of the weights.
      microbatch: samples of one forward and backward; divides the minibatch.
      seed: of the order.
    """

    n: int
    minibatch: int
    microbatch: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.microbatch <= self.minibatch or self.minibatch % self.microbatch:
            raise UsageError(
                f"microbatch {self.microbatch} does not divide minibatch {self.minibatch}. "
                "Choose one of its divisors."
            )
        if self.n < self.minibatch:
            raise UsageError(
                f"minibatch {self.minibatch}: the data has only {self.n} training samples. "
                f"Choose a minibatch of at most {self.n}."
            )

    @property
    def minibatches_per_epoch(self) -> int:
        """Whole minibatches in the data."""
        return self.n // self.minibatch

    def microbatches(self, cursor: Cursor) -> Iterator[np.ndarray]:
        """The microbatches of the minibatch at `cursor`: int64 indices, shape [microbatch]."""
        assert cursor == self._wrapped(cursor), cursor
        positions = np.arange(cursor.position, cursor.position + self.minibatch)
        indices = permuted(self.seed, cursor.epoch, positions, self.n)
        yield from indices.reshape(-1, self.microbatch)

    def after(self, cursor: Cursor) -> Cursor:
        """The cursor behind the minibatch at `cursor`."""
        return self._wrapped(Cursor(cursor.epoch, cursor.position + self.minibatch))

    def cursor_at(self, step: int) -> Cursor:
        """The cursor before minibatch number `step` (from 0) of the whole run."""
        epoch, number = divmod(step, self.minibatches_per_epoch)
        return Cursor(epoch, number * self.minibatch)

    def _wrapped(self, cursor: Cursor) -> Cursor:
        if cursor.position + self.minibatch > self.n:
            return Cursor(cursor.epoch + 1, 0)
        return cursor


def evaluation_batches(n: int, microbatch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Every sample once, in order: (int64 indices [microbatch], how many of them count).

    The last microbatch is filled up with sample 0, which does not count.
    """
    for start in range(0, n, microbatch):
        valid = min(microbatch, n - start)
        indices = np.zeros(microbatch, np.int64)
        indices[:valid] = np.arange(start, start + valid)
        yield indices, valid
