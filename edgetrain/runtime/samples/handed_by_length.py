"""Samples passed by a caller to a Program with several lengths; each call uses one length."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...data.sources.ragged import Arrays, is_ragged, row_of
from ...errors import DataError
from ..session import Session, StepResult
from .handed_over import HandedOver, Samples
from .lengths import Lengths
from .sample_callback import target_fields


class HandedByLength(HandedOver):
    """Like HandedOver, but pads a call's samples to the smallest length that fits all of them.

    If samples are already padded, a mapping of inputs may also contain "lengths".
    """

    def __init__(self, session: Session, lengths: Lengths) -> None:
        super().__init__(session)
        self._lengths = lengths

    def samples(self, x: Any, y: Any = None, weights: Any = None) -> Samples:
        return self.of_item((x, y, weights))

    def of_item(self, item: Any) -> Samples:
        lengths, session = self._lengths, self._session
        row = row_of(item, lengths.needed, lengths.inputs, "samples")
        wanted = target_fields(session.terms, row)
        missing = [name for name in wanted if name not in row]
        if missing:
            raise DataError(
                f"target: found {', '.join(row)}; expected a target for loss {session.loss.name}, "
                f"{missing[0]!r}. Pass it."
            )
        rows, alone = self._rows(row)
        placed = lengths.placed(rows)
        names, result = placed.program.input_names, placed.fields
        n = len(next(iter(result.values())))
        return Samples(
            {name: result[name] for name in names},
            {to: result[field] for field, to in wanted.items()},
            self._weights(result.get("w"), n),
            alone,
            placed.program,
        )

    def _rows(self, row: Arrays) -> tuple[Arrays, bool]:
        """Fields with samples along axis 0, and whether the input was one sample without this
        axis."""
        inputs = {name: fit for name, fit in self._lengths.inputs.items() if name in row}
        ranks = {name: row[name].ndim - len(fit.shape) for name, fit in inputs.items()}
        if {*ranks.values()} not in ({0}, {1}):
            name = next((n for n, more in ranks.items() if more not in (0, 1)), [*ranks][-1])
            wanted = [
                self._lengths.name if k in inputs[name].axes else size
                for k, size in enumerate(inputs[name].shape)
            ]
            raise DataError(
                f"input {name!r} has shape {list(row[name].shape)}; expected "
                f"[{', '.join(map(str, wanted))}] for each sample, with or without an axis of "
                "samples. Pass the same for every input."
            )
        if {*ranks.values()} == {0}:
            return {name: array[None] for name, array in row.items()}, True
        targets = target_fields(self._session.terms, row)
        axes = {name: self._staged[name].batch for name in inputs}
        axes |= {field: self._staged[to].batch for field, to in targets.items()}
        return {
            name: np.moveaxis(array, axes.get(name, 0), 0) if array.ndim else array[None]
            for name, array in row.items()
        }, False

    def enter(self, samples: Samples) -> None:
        self._session.change(samples.program)

    def step(self, samples: Samples) -> StepResult | None:
        self.enter(samples)
        return super().step(samples)

    def predict(self, x: Any) -> Any:
        """Like `HandedOver.predict`; outputs are as long as the samples. A list of samples with
        different lengths gives a list."""
        if is_ragged(x):
            return [self.predict(item) for item in x]
        if isinstance(x, Mapping) and any(map(is_ragged, x.values())):
            count = len(next(iter(x.values())))
            return [
                self.predict({name: column[k] for name, column in x.items()}) for k in range(count)
            ]
        row = row_of((x,), self._lengths.needed, self._lengths.inputs, "samples")
        rows, alone = self._rows(row)
        placed = self._lengths.placed(rows)
        inputs = {name: placed.fields[name] for name in placed.program.input_names}
        with self._session.turn:
            self._session.change(placed.program)
            result = self._session.predictions(inputs)
        own = {}
        for number, (name, array) in enumerate(result.items()):
            for axis in self._lengths.outputs[number]:
                array = array.take(np.arange(min(placed.width, array.shape[axis])), axis)
            own[name] = array[0] if alone else self.declared(array, number)
        return own if len(own) > 1 else next(iter(own.values()))
