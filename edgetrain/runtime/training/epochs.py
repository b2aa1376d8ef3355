"""Passes over the training data: the samples of the next step."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from ...data.order.batches import partial_note, steps_per_epoch
from ...data.order.permute import permuted
from ...data.source import Source
from ..session import Session, StepResult

if TYPE_CHECKING:
    from .batches import BatchPasses
    from .by_length import LengthPasses
    from .skipped import Fed


class SourcePasses:
    """Passes over a source; the order depends only on seed and epoch.

    Args:
      stopped: tells whether to discard the minibatch.
    Attributes:
      length: steps per pass.
      dropped: always "": dropped samples were reported before the first step.
      again: whether earlier steps can be repeated.
      placed: a step's number determines its place in the data.
      by_length: samples by length; empty for a Program of one length.
    """

    dropped, again, placed = "", True, True
    by_length: ClassVar[dict[str, int]] = {}

    def __init__(
        self, session: Session, source: Source, keep_last: bool, stopped: Callable[[], bool]
    ) -> None:
        self._session, self._source, self._stopped = session, source, stopped
        self.note = partial_note(source.n, session.program.minibatch, keep_last)
        self._keep_last = keep_last and source.n % session.program.minibatch != 0
        self.length: int = steps_per_epoch(source.n, session.program.minibatch, keep_last)
        self.samples = source.n

    def samples_between(self, begun: int, steps: int) -> int:
        """Approximate number of samples in these steps."""
        return max(steps - begun, 0) * self._session.program.minibatch  # 0 after a rollback

    def begin(self, epoch: int, done: int) -> None:
        """Does nothing: a step's number determines its samples."""

    def check_again(self) -> None:
        """Does nothing: any step can be repeated."""

    def ready(self) -> None:
        """Does nothing: samples are read during the step."""

    def run(self) -> StepResult | None:
        """Run the next step; None if it was discarded."""
        session, source = self._session, self._source
        staging = session.staging(source, "micro")
        key = self._key(session.step)

        def filler(indices: np.ndarray) -> bool:
            if self._stopped():
                return False
            staging.take(indices, key=key, train=True)
            return True

        if not self._keep_last:
            return session.minibatch(source.n, filler)
        microbatch, order = session.program.microbatch, self._samples_of(session.step)

        def part(first: int, valid: int) -> bool:
            indices = order[first : first + valid]
            return filler(indices[np.arange(microbatch) % valid])

        return session.partial_minibatch(len(order), part)

    def fed(self) -> "Fed":
        """A record of the samples of the last step."""
        from .skipped import Fed

        session, source, step = self._session, self._source, self._session.step - 1
        staging, indices = session.staging(source, "eval"), self._samples_of(step)

        def put(rows: np.ndarray) -> None:
            staging.take(indices[rows], key=self._key(step), train=True)

        return Fed(indices, put, lambda row: source.where(int(indices[row])))

    def _key(self, step: int) -> tuple[int, int]:
        """Seed and epoch of a step, for shuffling and augmentation."""
        return self._session.program.recipe["seed"], step // self.length

    def _samples_of(self, step: int) -> np.ndarray:
        """The samples of a step in order, int64."""
        minibatch, n = self._session.program.minibatch, self._source.n
        start = step % self.length * minibatch
        positions = np.arange(start, min(start + minibatch, n))
        return permuted(*self._key(step), positions, n)


Passes: TypeAlias = "SourcePasses | BatchPasses | LengthPasses"


def passes_of(
    session: Session, source: Source, keep_last: bool, stopped: Callable[[], bool]
) -> "SourcePasses | LengthPasses":
    """Passes over a source, by length if the Program has several."""
    if session.lengths is None:
        return SourcePasses(session, source, keep_last, stopped)
    from .by_length import LengthPasses

    return LengthPasses(session, session.lengths, source, keep_last, stopped)
