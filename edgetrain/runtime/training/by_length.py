"""Passes over samples of several lengths: each minibatch has samples of one length."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...data.order.by_length import LengthOrder
from ...data.source import Source
from ...errors import UsageError
from ..session import Session, StepResult

if TYPE_CHECKING:
    from ..samples.lengths import Lengths, Part
    from .skipped import Fed


class LengthPasses:
    """Like SourcePasses, with minibatches of one length each, in shuffled order.

    The order of lengths and samples depends only on seed and epoch. If all samples have the same
    length, they come in the order of SourcePasses.

    Attributes:
      length: steps per pass.
      samples: number of samples.
      again: whether earlier steps can be repeated.
      note: number of samples per length, and how many are dropped.
    """

    dropped, again, placed = "", True, True

    def __init__(
        self,
        session: Session,
        lengths: "Lengths",
        source: Source,
        keep_last: bool,
        stopped: Callable[[], bool],
    ) -> None:
        self._session, self._stopped = session, stopped
        self._parts, self.samples = lengths.parts(source), source.n
        sizes = [(len(part.indices), part.program.minibatch) for part in self._parts]
        self._order = LengthOrder(session.program.recipe["seed"], sizes, keep_last)
        self.length = self._order.steps
        if not self.length:
            result = ", ".join(
                f"{part.length}: {n} of {each}"
                for part, (n, each) in zip(self._parts, sizes, strict=True)
            )
            raise UsageError(
                f"minibatch: no length has enough samples for one ({result}). Use a smaller "
                "minibatch, or train on partial ones (--keep-last, in Python keep_last=True)."
            )
        self.note = "; ".join([lengths.note(source), *self._left(keep_last)])

    def _left(self, keep_last: bool) -> list[str]:
        """The note about samples that don't fill a minibatch, if any."""
        rest = {
            part.length: (len(part.indices) % part.program.minibatch, count)
            for part, count in zip(self._parts, self._order.counts, strict=True)
        }
        dropped, never = (
            sum(n for n, _ in rest.values()),
            [k for k, (_, c) in rest.items() if not c],
        )
        if keep_last or not dropped:
            return []
        said = f"{dropped} samples are dropped in each epoch: they don't fill a minibatch"
        if never:
            said += f", and length {', '.join(map(str, never))} has too few for any"
        return [f"{said} (--keep-last, keep_last=True trains on them)"]

    @property
    def by_length(self) -> dict[str, int]:
        """Samples by length."""
        return {str(part.length): len(part.indices) for part in self._parts}

    def samples_between(self, begun: int, steps: int) -> int:
        """Number of samples in these steps."""
        return sum(len(self._samples_of(step)[1]) for step in range(begun, steps))

    def begin(self, epoch: int, done: int) -> None:
        """Does nothing: a step's number determines its samples."""

    def check_again(self) -> None:
        """Does nothing: any step can be repeated."""

    def ready(self) -> None:
        """Does nothing: samples are read during the step."""

    def run(self) -> StepResult | None:
        """Run the next step; None if it was discarded."""
        session = self._session
        part, order = self._samples_of(session.step)
        session.change(part.program)
        staging, key = session.staging(part.source, "micro"), self._key(session.step)

        def fill(first: int, valid: int) -> bool:
            if self._stopped():
                return False
            rows = first + np.arange(part.program.microbatch) % valid
            staging.take(order[rows], key=key, train=True)
            return True

        return session.partial_minibatch(len(order), fill)

    def fed(self) -> "Fed":
        """A record of the samples of the last step."""
        from .skipped import Fed

        session, step = self._session, self._session.step - 1
        part, order = self._samples_of(step)
        staging = session.staging(part.source, "eval")

        def put(rows: np.ndarray) -> None:
            staging.take(order[rows], key=self._key(step), train=True)

        return Fed(order, put, lambda row: part.source.where(int(order[row])))

    def _key(self, step: int) -> tuple[int, int]:
        """Seed and epoch of a step, for shuffling and augmentation."""
        return self._session.program.recipe["seed"], step // self.length

    def _samples_of(self, step: int) -> tuple["Part", np.ndarray]:
        """The length of a step and its samples in order, int64."""
        number, places = self._order.at(step)
        part = self._parts[number]
        return part, part.indices[places]
