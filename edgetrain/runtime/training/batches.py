"""Passes over training data that consists of batches: each is a step."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from ...data.sources.items import check_bytes
from ...errors import DataError, RunError, UsageError
from ...units.wording import counted
from ..run.position import EndOfPass
from ..session import Session, StepResult

if TYPE_CHECKING:
    from ...data.sources.items import Batches
    from ..samples.handed_over import Samples
    from .skipped import Fed


class BatchPasses:
    """Passes over an iterable of batches; each batch is a step.

    Single samples are collected into minibatches.

    Attributes:
      length: steps per pass; None if unknown.
      dropped: message about samples dropped in the last pass; "" if none.
    """

    samples, note, placed = 0, "", False
    by_length: ClassVar[dict[str, int]] = {}

    def __init__(
        self, session: Session, batches: "Batches", keep_last: bool, stopped: Callable[[], bool]
    ) -> None:
        self._session, self._batches, self._keep_last = session, batches, keep_last
        from ..samples.taker import handed_over

        self._handed_over, self._stopped = handed_over(session), stopped
        self._items: Iterator[Any] | None = None
        self._ended, self._number, self.dropped = False, 0, ""
        self._last: Samples | None = None
        self.length = self._steps(batches)

    def _steps(self, batches: "Batches") -> int | None:
        """Steps per pass; reads the first item of data that has a length but may consist of single
        samples."""
        n = batches.length
        if not n or not batches.again or batches.says_batches:
            return n
        first = batches.first()
        if first is None or not self._samples(first).alone:
            return n
        minibatch = self._session.program.minibatch
        return n // minibatch if n >= minibatch and not self._keep_last else -(-n // minibatch)

    @property
    def again(self) -> bool:
        """Whether earlier steps can be repeated."""
        return self._batches.again

    def samples_between(self, begun: int, steps: int) -> int:
        """Approximate number of samples in these steps."""
        return max(steps - begun, 0) * self._session.program.minibatch

    def begin(self, epoch: int, done: int) -> None:
        """Begin a pass, or continue one.

        Args:
          done: steps already done in this pass; they are skipped if the data restarts.
        Raises:
          UsageError: the data has ended and can't restart.
        """
        self._number, self.dropped = done, ""
        if self._items is not None and done:
            return
        if self._ended and not self._batches.again:
            raise UsageError(
                f"{self._batches.name}: it is exhausted, and a generator can't restart. Pass a "
                "list, a DataLoader, or a function that returns the generator."
            )
        self._items = iter(self._batches)
        if done and self._batches.again:
            for _ in range(done):
                self._next()

    def check_again(self) -> None:
        """Prepare to repeat earlier steps.

        Raises:
          RunError: the data can't restart.
        """
        if not self._batches.again:
            raise RunError(
                f"{self._batches.name}: a generator can't restart, so the steps since the last "
                "checkpoint are lost. Pass a list, a DataLoader, or a function that returns the "
                "generator, and resume."
            )
        self._items = None

    def ready(self) -> None:
        """Fetch the batch of the next step; other threads may use the session meanwhile.

        Raises:
          EndOfPass: there are no more batches.
        """
        self._last = None  # free its memory before the next batch is made
        self._last = self._next()
        self._number += 1

    def run(self) -> StepResult | None:
        """Run the next step; None if it was discarded."""
        assert self._last is not None
        return None if self._stopped() else self._handed_over.step(self._last)

    def fed(self) -> "Fed":
        """A record of the samples of the last step."""
        assert self._last is not None
        batch = self._number - 1
        return self._handed_over.fed(self._last, f"batch {batch}, ", batch)

    def _next(self) -> "Samples":
        assert self._items is not None
        first = next(self._items, None)
        if first is None:
            self._end()
        samples = self._samples(first)
        if not samples.alone:
            return samples
        if self._session.lengths is not None:
            raise DataError(
                f"{self._batches.name}: it returned single samples, which can't be sorted by "
                "length. Pass a list of them, or batches of one length each."
            )
        minibatch = self._session.program.minibatch
        more = [self._samples(item) for item in islice(self._items, minibatch - 1)]
        if len(more) < minibatch - 1 and not self._keep_last:
            self._drop(1 + len(more), minibatch)
        if not all(value.alone for value in more):
            raise DataError(
                f"{self._batches.name}: it returned both single samples and batches. "
                f"Return only one kind."
            )
        return _joined([samples, *more])

    def _drop(self, count: int, minibatch: int) -> NoReturn:
        """End a pass with a partial minibatch.

        Raises:
          UsageError: it was the only one.
        """
        if not self._number:
            raise UsageError(
                f"{self._batches.name}: it has only {counted(count, 'sample')}; the minibatch is "
                f"{minibatch}. Compile with a minibatch of at most {count}, or train on a partial "
                "one (keep_last=True)."
            )
        self.dropped = (
            f"{count} samples at the end of the epoch are dropped: they don't fill a minibatch of "
            f"{minibatch} (keep_last=True trains on them)"
        )
        self._end()

    def _end(self) -> NoReturn:
        self._items, self._ended = None, True
        raise EndOfPass

    def _samples(self, item: Any) -> "Samples":
        return self._handed_over.of_item(item)


def _joined(parts: "list[Samples]") -> "Samples":
    first = parts[0]
    for part in parts:
        for k, array in part.inputs.items():
            check_bytes("samples", k, array.dtype, first.inputs[k].dtype == np.uint8)
    inputs = {k: np.concatenate([part.inputs[k] for part in parts]) for k in first.inputs}
    targets = {k: np.concatenate([part.targets[k] for part in parts]) for k in first.targets}
    weights = [part.weights for part in parts if part.weights is not None]
    if weights and len(weights) != len(parts):
        raise DataError("weights: only some samples have weights. Pass one for each sample.")
    return type(first)(
        inputs,
        targets,
        np.concatenate(weights) if weights else None,
        False,
        first.program,
    )
