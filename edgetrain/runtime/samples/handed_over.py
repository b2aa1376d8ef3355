"""Samples passed by a caller: one or several, staged for a step or a prediction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.sources.items import named_inputs
from ...data.tensors import as_samples, as_targets
from ...errors import DataError, UsageError
from ...program import TARGET, WEIGHT
from ..session import Session, StepResult
from .staging import stage

if TYPE_CHECKING:
    from ..training.skipped import Fed


@dataclass(frozen=True)
class Samples:
    """Samples of one step.

    Attributes:
      inputs: arrays [n, ...] by name.
      target: [n, ...]; None if the loss takes none.
      weights: float [n]; None: all equal.
      alone: it was a single sample without a sample axis.
    """

    inputs: dict[str, np.ndarray]
    target: np.ndarray | None
    weights: np.ndarray | None
    alone: bool

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


class HandedOver:
    """Steps and predictions of a session on samples passed by a caller.

    A step takes at most a minibatch of samples; loss and gradient are the mean over them. A partial
    microbatch is padded with repeated samples, which don't affect loss or gradient but do affect
    batch-norm statistics; mean and variance are unchanged if the number of samples divides the
    microbatch.
    """

    def __init__(self, session: Session) -> None:
        self._session, program = session, session.program
        self._buffers = session.buffers("micro")
        slots = {slot.name: slot for slot in program.inputs["micro"]}
        self._slots = {name: slots[name] for name in program.input_names}
        self._target = program.targets["micro"]

    def samples(self, x: Any, y: Any = None, weights: Any = None) -> Samples:
        """Check samples against the model.

        Args:
          x: one or more samples as the model's file declares them; for several inputs a mapping
            by name, or a tuple in the model's order.
          y: targets in the layout of the output (`Slot.batch`).
          weights: one number >= 0 per sample.
        Raises:
          DataError: inputs are missing, or have wrong shapes or lengths.
        """
        takes = y is None and self._session.loss.takes_target
        if takes and isinstance(x, tuple) and len(x) == 2 and len(self._slots) == 1:
            raise DataError("step: found a pair; expected two arguments: step(x, y).")
        inputs, alone = self._inputs(x)
        counts = {name: len(array) for name, array in inputs.items()}
        n = next(iter(counts.values()))
        if {*counts.values()} != {n} or not n:
            found = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise DataError(f"samples per input: {found}; expected the same number, at least 1.")
        target = None
        if self._session.loss.takes_target:
            if y is None:
                raise DataError(
                    f"target: missing; loss {self._session.loss.name} needs one of shape "
                    f"{[*self._target.declared(n)]}. Pass y."
                )
            target = as_targets("target", y, self._target.shape[1:], n, self._target.batch)
        elif y is not None:
            raise DataError("target: the model's output is the loss. Leave y out.")
        return Samples(inputs, target, self._weights(weights, n), alone)

    def _inputs(self, x: Any) -> tuple[dict[str, np.ndarray], bool]:
        x = named_inputs(x, tuple(self._slots))
        found = {
            name: as_samples(f"input {name!r}", x[name], slot.shape[1:], slot.batch)
            for name, slot in self._slots.items()
        }
        alone = all(single for _, single in found.values())
        if not alone and any(single for _, single in found.values()):
            raise DataError(
                "inputs: some contain one sample, some several. Pass the same number for each."
            )
        return {name: array for name, (array, _) in found.items()}, alone

    def _weights(self, weights: Any, n: int) -> np.ndarray | None:
        if weights is None:
            return None
        if WEIGHT not in self._buffers:
            raise UsageError(
                "weights: this Program has no sample weights. Compile the model with "
                f"loss=et.Loss({self._session.loss.name!r}, sample_weights=True)."
            )
        array = as_targets("weights", weights, (), n).astype(np.float64).reshape(n)
        if not np.isfinite(array).all() or (array < 0).any():
            raise DataError("weights: expected finite numbers of at least 0, one per sample.")
        return array

    def step(self, samples: Samples) -> StepResult | None:
        """Train one step on the samples.

        Raises:
          UsageError: more than a minibatch of samples.
          DataError: a value is out of range.
        """
        n, program = len(samples), self._session.program
        if n > program.minibatch:
            raise UsageError(
                f"step: {n} samples; this Program's minibatch is {program.minibatch}. Pass fewer, "
                f"or compile with minibatch={n} (memory depends on the microbatch)."
            )
        if n < program.minibatch and (mixed := program.account.get("mixed_by")):
            raise DataError(
                f"step: {n} samples; {mixed}, so a step needs the whole minibatch. Pass "
                f"{program.minibatch}."
            )
        rest = n % program.microbatch
        if rest and program.microbatch % rest and self._session.is_mean:
            raise DataError(
                f"step: {n} samples; the model's output is a mean over a microbatch of "
                f"{program.microbatch}. Pass a number of samples that divides it."
            )
        return self._session.partial_minibatch(
            n, lambda start, count: self.stage(samples, start, count)
        )

    def stage(self, samples: Samples, start: int, count: int) -> None:
        """Stage samples [start, start + count) as a microbatch, repeated until it is full."""
        arrays = dict(samples.inputs)
        if samples.target is not None:
            arrays[TARGET] = samples.target
        for name, array in arrays.items():
            buffer, part = self._buffers[name], array[start : start + count]
            stage(self._session.program, name, buffer[:count], part)
        if samples.target is None and TARGET in self._buffers:
            self._buffers[TARGET][...] = 0
        if WEIGHT in self._buffers:
            weights = samples.weights
            found = 1.0 if weights is None else weights[start : start + count]
            self._buffers[WEIGHT][:count] = found
        for buffer in self._buffers.values():
            if count < len(buffer):
                buffer[count:] = buffer[np.arange(len(buffer) - count) % count]

    def put(self, samples: Samples, indices: np.ndarray, buffers: Mapping[str, np.ndarray]) -> None:
        """Stage these samples; indices may repeat."""
        for name, array in samples.inputs.items():
            stage(self._session.program, name, buffers[name], array[indices])
        if samples.target is not None:
            stage(self._session.program, TARGET, buffers[TARGET], samples.target[indices])
        elif TARGET in buffers:
            buffers[TARGET][...] = 0
        if WEIGHT in buffers:
            buffers[WEIGHT][...] = 1 if samples.weights is None else samples.weights[indices]

    def fed(self, samples: Samples, where: str = "", batch: int | None = None) -> "Fed":
        """A record of the samples, for a skipped step.

        Args:
          where, batch: their batch in the data.
        """
        from ..training.skipped import Fed

        buffers = self._session.buffers("eval")
        return Fed(
            np.arange(len(samples)),
            lambda rows: self.put(samples, rows, buffers),
            lambda row: f"{where}sample {row}",
            batch,
        )

    def predict(self, x: Any) -> np.ndarray:
        """The model's output in evaluation mode, as the file declares it; for a single sample
        without the sample axis.

        Raises:
          DataError: as in `samples`.
        """
        inputs, alone = self._inputs(x)
        found = self._session.predict(inputs)
        return found[0] if alone else self.declared(found)

    def declared(self, outputs: np.ndarray) -> np.ndarray:
        """Outputs [n, ...] in the layout of the model's file."""
        return np.moveaxis(outputs, 0, self._session.program.outputs["eval"][0].batch)
