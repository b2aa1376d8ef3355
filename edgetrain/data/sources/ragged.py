"""Samples of different lengths: a list of samples, or a list of arrays per field."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from edgetrain.errors import DataError

from ..checks.values import check_integers
from ..source import Field, Source, natural
from ..tensors import as_array
from .items import Batches, batch_of, check_bytes, named_inputs, scale_of_bytes
from .padded import LENGTHS, Fit, laid_out, too_long, too_short

Arrays = dict[str, np.ndarray]


class Ragged(Source):
    """Samples padded to the longest one, with a field for their lengths.

    All samples are read once on creation, and again when they are used.

    Args:
      get: returns the fields of a sample, by index.
      inputs: layout of inputs by field; their `axes` depend on the length.
      targets: layout and padding of targets by field; other fields are padded with 0.
    Raises:
      DataError: a sample's fields or numbers of axes differ from the first sample's, or its targets
        are longer or shorter than the sample.
    """

    def __init__(
        self,
        name: str,
        n: int,
        get: Callable[[int], Arrays],
        inputs: Mapping[str, Fit],
        targets: Mapping[str, Fit],
    ) -> None:
        first = get(0)
        shapes = {field: array.shape for field, array in first.items()}
        self._get, self._targets, self._ends = get, targets, np.empty(n, np.int64)
        types = {field: array.dtype for field, array in first.items()}
        scale = scale_of_bytes(first)
        for index in range(n):
            row = first if index == 0 else get(index)
            if {k: a.ndim for k, a in row.items()} != {k: len(s) for k, s in shapes.items()}:
                result = ", ".join(f"{k} {list(array.shape)}" for k, array in row.items())
                raise DataError(f"{name}: sample {index}: {result}; unlike sample 0.")
            for k, array in row.items():
                check_bytes(f"{name}: sample {index}", k, array.dtype, k in scale)
            types = {k: np.result_type(dtype, row[k]) for k, dtype in types.items()}
            shapes = {k: tuple(map(max, s, row[k].shape)) for k, s in shapes.items()}
            width = self._width(name, index, row, inputs)
            self._ends[index] = self._end(name, index, row, width)
            self._check_targets(name, index, row, width)
        fields = {k: Field(shape, natural(types[k], k in scale)) for k, shape in shapes.items()}
        lengths = {LENGTHS: Field((), np.dtype(np.int64))}
        super().__init__(name, n, lengths | fields, scale=scale)

    def _end(self, name: str, index: int, row: Arrays, width: int) -> int:
        """Length of a sample: as given, or else that of its arrays."""
        if LENGTHS not in row:
            return width
        given = row[LENGTHS].reshape(1, -1)[:, :1]
        label = f"{name}: sample {index}: field {LENGTHS!r}"
        check_integers(given, np.dtype(np.int64), None, None, lambda _: label)
        return int(given.item())

    def _check_targets(self, name: str, index: int, row: Arrays, width: int) -> None:
        """Refuse targets that are longer or shorter than their sample."""
        for field in self._targets.keys() & row.keys():
            fit, label = self._targets[field], f"{name}: sample {index}: field {field!r}"
            shape = laid_out(row[field].shape, fit)
            if shape is None or not fit.exact:
                continue
            for axis in fit.axes:
                end = min(width, int(self._ends[index]))
                if fit.each and shape[axis] < end:
                    raise too_short(label, shape[axis], end, fit)
                if fit.rest(row[field].reshape(1, *shape), axis, width).any():
                    raise too_long(label, width, fit)

    @staticmethod
    def _width(name: str, index: int, row: Arrays, inputs: Mapping[str, Fit]) -> int:
        """Length of a sample's longest input."""
        ends = []
        for field, array in row.items():
            fit = inputs.get(field)
            if fit is None or not fit.axes:
                continue
            shape = laid_out(array.shape, fit)
            if shape is None:
                wanted = [f"n{k}" if k in fit.axes else s for k, s in enumerate(fit.shape)]
                raise DataError(
                    f"{name}: sample {index}: input {field!r} has shape {list(array.shape)}; "
                    f"expected [{', '.join(map(str, wanted))}], of any length. Reshape it."
                )
            ends += [shape[axis] for axis in fit.axes]
        return max(ends, default=1)

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        out: dict[str, np.ndarray] = {}
        wanted = [name for name in names if name != LENGTHS]
        rows = [self._get(index) for index in indices.tolist()] if wanted else []
        for name in wanted:
            field, own = self.fields[name], self._targets.get(name)
            fill = own.fill if own is not None else 0
            result = out[name] = np.full((len(rows), *field.shape), fill, field.dtype)
            for place, row in enumerate(rows):
                where: tuple[Any, ...] = (place, *map(slice, row[name].shape))
                result[where] = row[name]
        return out | ({LENGTHS: self._ends[indices]} if LENGTHS in names else {})


def opened_ragged(
    data: Any, names: tuple[str, ...], inputs: Mapping[str, Fit], targets: Mapping[str, Fit]
) -> Source | Batches | None:
    """Samples of different lengths, or batches; None for anything else: text, a source, arrays.

    Args:
      names: the model's inputs that the data must have.
      inputs, targets: as for `Ragged`; `inputs` covers all of the model's.
    Raises:
      DataError: the data is empty, or an item is not a sample.
    """
    if data is None or isinstance(data, str | Source | np.ndarray):
        return None
    if isinstance(data, list) and len(data) == 2 and not any(map(_is_item, data)):
        data = tuple(data)
    if isinstance(data, tuple) and len(data) in (2, 3):
        data = dict(zip(("x", "y", "w"), data, strict=False))
    if isinstance(data, Mapping):
        ragged = any(map(is_ragged, data.values()))
        return _columns(data, names, inputs, targets) if ragged else None
    if isinstance(data, type):
        raise DataError(f"data: the class {data.__name__}; expected an instance. Make one.")
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        return Batches(data) if callable(data) or isinstance(data, Iterable) else None
    if not len(data):
        raise DataError(f"data: an empty {type(data).__name__}. Pass samples.")
    first = row_of(data[0], names, inputs, "sample 0")
    own = next(name for name in first if name in inputs)
    if first[own].ndim > len(inputs[own].shape):
        return Batches(data)

    def get(index: int) -> Arrays:
        return row_of(data[index], names, inputs, f"sample {index}")

    return Ragged(type(data).__name__, len(data), get, inputs, targets)


def _columns(
    data: Mapping[str, Any],
    names: tuple[str, ...],
    inputs: Mapping[str, Fit],
    targets: Mapping[str, Fit],
) -> Ragged:
    """Ragged samples from a list of arrays per field."""
    counts = {name: len(column) for name, column in data.items()}
    if len({*counts.values()}) != 1:
        result = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise DataError(f"arrays: samples per array: {result}; expected the same number.")
    renamed = {names[0] if name == "x" and len(names) == 1 else name: name for name in data}

    def get(index: int) -> Arrays:
        return {
            name: as_array(f"sample {index}: {name}", data[given][index])
            for name, given in renamed.items()
        }

    return Ragged("arrays", next(iter(counts.values())), get, inputs, targets)


def is_ragged(column: Any) -> bool:
    """Whether these are arrays of different shapes."""
    several = (
        isinstance(column, list | tuple)
        or getattr(getattr(column, "dtype", None), "kind", "") == "O"
    )
    return bool(several) and len({np.shape(sample) for sample in column}) > 1


def row_of(item: Any, names: tuple[str, ...], inputs: Mapping[str, Fit], label: str) -> Arrays:
    """The fields of a sample, or of a batch, as arrays: inputs, targets, "w", "lengths".

    Args:
      names, inputs: as for `opened_ragged`.
    Raises:
      DataError: inputs are missing.
    """
    given, ends = item, None
    if isinstance(item, Mapping) and LENGTHS in item and LENGTHS not in inputs:
        given = {name: value for name, value in item.items() if name != LENGTHS}
        ends = item[LENGTHS]
    own = names
    if isinstance(given, Mapping):
        own = tuple(name for name in inputs if name in names or name in given)
    x, y, weight = batch_of(given, own)
    if isinstance(x, Mapping):
        own = tuple(name for name in inputs if name in names or name in x)
        if LENGTHS in x and LENGTHS not in inputs:
            ends, x = x[LENGTHS], {name: value for name, value in x.items() if name != LENGTHS}
    result = named_inputs(x, own, label)
    result |= dict(y) if isinstance(y, Mapping) else {} if y is None else {"y": y}
    result |= {} if weight is None else {"w": weight}
    result |= {} if ends is None else {LENGTHS: ends}
    return {name: as_array(f"{label}: {name}", value) for name, value in result.items()}


def _is_item(value: Any) -> bool:
    return isinstance(value, tuple | Mapping)
