"""Samples passed by a caller: one or several, staged for a step or a prediction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.sources.items import batch_of, named_inputs
from ...data.tensors import as_samples, as_targets
from ...errors import DataError, UsageError
from ...program import TARGET, WEIGHT, Program
from ..session import Session, StepResult
from .sample_callback import target_fields
from .staging import stage

if TYPE_CHECKING:
    from ..training.skipped import Fed


@dataclass(frozen=True)
class Samples:
    """Samples of one step.

    Attributes:
      inputs: by the model's input names, each [n, ...].
      targets: by the name of the staged value, each [n, ...]; empty if the loss takes no target.
      weights: float [n]; None: all equal.
      alone: the input was one sample without a sample axis.
      program: the Program with the tape set for these samples.
    """

    inputs: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]
    weights: np.ndarray | None
    alone: bool
    program: Program

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
        slots = {slot.name: slot for slot in program.inputs["micro"]}
        self._slots = {name: slots[name] for name in program.input_names}
        self._target = program.targets["micro"]
        self._staged = {slot.name: slot for slot in program.inputs["micro"]}
        self._staged[TARGET] = self._target

    @property
    def _buffers(self) -> dict[str, np.ndarray]:
        return self._session.buffers("micro")

    def enter(self, samples: Samples) -> None:
        """Switch the session to the samples' tape set; most Programs have only one."""

    def of_item(self, item: Any) -> Samples:
        """The samples of a data loader's item, as in `samples`."""
        return self.samples(*batch_of(item, tuple(self._slots)))

    def samples(self, x: Any, y: Any = None, weights: Any = None) -> Samples:
        """Check samples against the model.

        Args:
          x: one sample, or several in the layout declared in the model's file. For a model with
            several inputs: a mapping by name, or a tuple in their order.
          y: one target per sample, in the layout of the output (`Slot.batch`); with several losses,
            a mapping by output name.
          weights: one number per sample, 0 or more.
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
            result = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise DataError(f"samples per input: {result}; expected the same number, at least 1.")
        targets = self._targets(y, n)
        program = self._session.program
        return Samples(inputs, targets, self._weights(weights, n), alone, program)

    def _targets(self, y: Any, n: int) -> dict[str, np.ndarray]:
        session = self._session
        wanted = target_fields(session.terms, y if isinstance(y, Mapping) else ("y",))
        if not wanted:
            if y is not None:
                raise DataError("target: the model's output is the loss; its targets are inputs.")
            return {}
        if y is None:
            names = f" by the names {', '.join(wanted)}" if len(wanted) > 1 else ""
            raise DataError(
                f"target: none; expected {[*self._target.declared(n)]} for loss "
                f"{session.loss.name}{names}. Pass y."
            )
        if not isinstance(y, Mapping) and [*wanted] == ["y"]:
            y = {"y": y}
        if not isinstance(y, Mapping) or {*y} != {*wanted}:
            result = ", ".join(map(str, y)) if isinstance(y, Mapping) else type(y).__name__
            raise DataError(
                f"target: {result or 'none'}; expected targets by the names {', '.join(wanted)}."
            )
        targets = {}
        for field, name in wanted.items():
            label = "target" if name == TARGET else f"target {field!r}"
            slot = self._staged[name]
            targets[name] = as_targets(label, y[field], slot.shape[1:], n, slot.batch)
        return targets

    def _inputs(self, x: Any) -> tuple[dict[str, np.ndarray], bool]:
        x = named_inputs(x, tuple(self._slots))
        result = {
            name: as_samples(f"input {name!r}", x[name], slot.shape[1:], slot.batch)
            for name, slot in self._slots.items()
        }
        alone = all(single for _, single in result.values())
        if not alone and any(single for _, single in result.values()):
            raise DataError(
                "inputs: some contain one sample, some several. Pass the same number for each."
            )
        return {name: array for name, (array, _) in result.items()}, alone

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
        """Stage samples [start, start + count) as the next microbatch, repeated until it is
        full."""
        for name, array in {**samples.inputs, **samples.targets}.items():
            buffer, part = self._buffers[name], array[start : start + count]
            stage(self._session.program, name, buffer[:count], part)
        for name in self._untouched(samples):
            self._buffers[name][...] = 0
        if WEIGHT in self._buffers:
            weights = samples.weights
            result = 1.0 if weights is None else weights[start : start + count]
            self._buffers[WEIGHT][:count] = result
        for buffer in self._buffers.values():
            if count < len(buffer):
                buffer[count:] = buffer[np.arange(len(buffer) - count) % count]

    def _untouched(self, samples: Samples) -> set[str]:
        """Staged targets that the samples don't fill, because no loss reads them."""
        return self._buffers.keys() - samples.inputs.keys() - samples.targets.keys() - {WEIGHT}

    def put(self, samples: Samples, indices: np.ndarray, buffers: Mapping[str, np.ndarray]) -> None:
        """Stage the samples at `indices`, which may repeat."""
        for name, array in {**samples.inputs, **samples.targets}.items():
            stage(self._session.program, name, buffers[name], array[indices])
        for name in self._untouched(samples):
            buffers[name][...] = 0
        if WEIGHT in buffers:
            buffers[WEIGHT][...] = 1 if samples.weights is None else samples.weights[indices]

    def fed(self, samples: Samples, where: str = "", batch: int | None = None) -> "Fed":
        """A record of the samples, for a skipped step.

        Args:
          where, batch: their batch in the data.
        """
        from ..training.skipped import Fed

        self.enter(samples)
        buffers = self._session.buffers("eval")
        return Fed(
            np.arange(len(samples)),
            lambda rows: self.put(samples, rows, buffers),
            lambda row: f"{where}sample {row}",
            batch,
        )

    def predict(self, x: Any) -> Any:
        """The model's output in evaluation mode and in the file's layout. A single sample without a
        sample axis gives an output without it. With losses on several outputs, a dict by output
        name.

        Raises:
          DataError: as in `samples`.
        """
        pair = isinstance(x, tuple) and len(x) == 2 and len(self._slots) == 1
        if pair and np.shape(x[0]) != np.shape(x[1]):
            raise DataError("predict: found a pair; expected inputs without targets: predict(x).")
        inputs, alone = self._inputs(x)
        result = self._session.predictions(inputs)
        own = {
            name: array[0] if alone else self.declared(array, number)
            for number, (name, array) in enumerate(result.items())
        }
        return own if len(own) > 1 else next(iter(own.values()))

    def declared(self, outputs: np.ndarray, number: int = 0) -> np.ndarray:
        """One of the outputs, [n, ...], converted to the layout declared in the model's file."""
        return np.moveaxis(outputs, 0, self._session.program.outputs["eval"][number].batch)
