"""Data that is a sequence of samples or an iterator of batches, recognised by its methods.

For example a list of (x, y), a torch Dataset or DataLoader, or a generator; no library is imported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from edgetrain.errors import DataError

from ..rows import is_array
from ..source import BYTES, Field, Scale, Source, natural
from ..tensors import as_array, as_samples

# Input name -> (shape of one sample, sample axis of a batch).
Shapes = Mapping[str, tuple[tuple[int, ...], int]]


class Items(Source):
    """Samples of a sequence, such as a list of (x, y), fetched on demand.

    Args:
      items: a sequence: len() and indexing.
      shapes: shapes of the model's inputs.
    """

    def __init__(self, items: Any, shapes: Shapes) -> None:
        self._items, self._names = items, tuple(shapes)
        first = self._arrays(0)
        scale = scale_of_bytes(first)
        fields = {
            name: Field(array.shape, natural(array.dtype, name in scale))
            for name, array in first.items()
        }
        super().__init__(type(items).__name__, len(items), fields, scale=scale)

    def _arrays(self, index: int) -> dict[str, np.ndarray]:
        x, y, weight = batch_of(_item(self._items, index), self._names)
        label = f"sample {index}"
        inputs = named_inputs(x, self._names, label)
        if len(inputs) == 1:
            inputs = {"x": next(iter(inputs.values()))}
        targets = dict(y) if isinstance(y, Mapping) else {} if y is None else {"y": y}
        result = inputs | targets | ({} if weight is None else {"w": weight})
        return {name: as_array(f"{label}: {name}", value) for name, value in result.items()}

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        rows = [self._arrays(index) for index in indices.tolist()]
        for index, row in zip(indices.tolist(), rows, strict=True):
            shapes = {name: array.shape for name, array in row.items()}
            if shapes != {name: field.shape for name, field in self.fields.items()}:
                result = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
                raise DataError(f"{self.name}: sample {index}: {result}; unlike sample 0.")
            for name, array in row.items():
                check_bytes(f"{self.name}: sample {index}", name, array.dtype, name in self.scale)
        return {name: np.stack([row[name] for row in rows]) for name in names}


class Batches:
    """An iterable of batches or of single samples.

    Attributes:
      again: whether it can be iterated again from the start.
      length: items per pass; None if unknown.
    """

    _begun: Iterator[Any] | None = None

    def __init__(self, data: Any) -> None:
        called = callable(data) and not isinstance(data, Iterable) and not _indexed(data)
        self._make: Callable[[], Iterator[Any]]
        if called:
            self._make, self.again = lambda: iter(data()), True
        elif isinstance(data, Iterable):
            first = iter(data)
            self.again = first is not data
            self._make = (lambda: iter(data)) if self.again else (lambda: first)
        else:
            self._make, self.again = lambda: _indexed_items(data), True
        self.name = type(data).__name__
        self._batch_size = getattr(data, "batch_size", None)
        self.length: int | None = None
        if not called:
            try:
                self.length = len(data)
            except (TypeError, NotImplementedError):
                self.length = None

    def __repr__(self) -> str:
        return f"Batches({self.name})"

    def __iter__(self) -> Iterator[Any]:
        """Iterate from the start; if that is impossible, from the current position.

        Raises:
          DataError: a function did not return an iterable.
        """
        begun, self._begun = self._begun, None
        try:
            return self._make() if begun is None else begun
        except TypeError as error:
            raise DataError(
                f"{self.name}: {error}; expected a function that returns (x, y) batches."
            ) from error

    def first(self) -> Any:
        """The first item of the next pass, which still gives it; None if there is none."""
        items = iter(self)
        item = next(items, None)
        self._begun = items if item is None else chain([item], items)
        return item

    @property
    def says_batches(self) -> bool:
        """Whether the data itself says that its items are batches, as torch's DataLoader does."""
        return self._batch_size is not None


def opened(data: Any, shapes: Shapes) -> Source | Batches | None:
    """Wrap such data; None for anything else: a string, a Source, arrays.

    Args:
      shapes: sample shape of each model input, to tell samples from batches.
    Raises:
      DataError: it is empty, or contains neither.
    """
    if data is None or isinstance(data, str | Source | tuple | Mapping) or is_array(data):
        return None
    if isinstance(data, list) and len(data) == 2 and not any(map(_is_item, data)):
        return None
    if isinstance(data, type):
        raise DataError(f"data: the class {data.__name__}; expected an instance. Make one.")
    if _indexed(data):
        if not len(data):
            raise DataError(f"data: an empty {type(data).__name__}. Pass samples.")
        return Items(data, shapes) if _is_sample(_item(data, 0), shapes) else Batches(data)
    return Batches(data) if callable(data) or isinstance(data, Iterable) else None


def named_inputs(x: Any, names: tuple[str, ...], label: str = "") -> dict[str, Any]:
    """Inputs by name.

    Args:
      x: a mapping; for several inputs also a tuple in the model's order; for one input a bare
        value.
    Raises:
      DataError: an input is missing or unknown.
    """
    where = f"{label}: " if label else ""
    if isinstance(x, tuple | list) and len(names) > 1 and len(x) == len(names):
        return dict(zip(names, x, strict=True))
    if not isinstance(x, Mapping):
        if len(names) > 1:
            raise DataError(
                f"{where}the model has inputs {', '.join(names)}. Pass a dict of arrays with "
                "these names."
            )
        return {names[0]: x}
    if {*x} > {*names}:
        more = ", ".join(str(name) for name in x if name not in names)
        raise DataError(
            f"{where}inputs {', '.join(map(str, x))}; the Program reads only "
            f"{', '.join(names)}. Leave {more} out."
        )
    if {*x} != {*names}:
        raise DataError(
            f"{where}inputs {', '.join(map(str, x)) or 'none'}; the model's are "
            f"{', '.join(names)}. Use these names."
        )
    return {name: x[name] for name in names}


def batch_of(item: Any, names: tuple[str, ...]) -> tuple[Any, Any, Any]:
    """(x, y, weights) of a data loader's item, which is a tuple, list or mapping.

    An array is x. A mapping has the inputs by name, "w" for weights, and the target as "y" or under
    the one remaining name; with several losses, targets by the names of their outputs.

    Raises:
      DataError: the item has none of these forms.
    """
    if isinstance(item, Mapping):
        rest = dict(item)
        x = {name: rest.pop(name) for name in names if name in rest}
        if not x and len(names) == 1 and "x" in rest:
            x = {names[0]: rest.pop("x")}
        weights = rest.pop("w", None)
        if not x and len(names) == 1 and "y" in rest and len(rest) == 2:
            x = {names[0]: rest.pop(next(name for name in rest if name != "y"))}
        if len(rest) <= 1:
            return x, next(iter(rest.values()), None), weights
        if x:
            return x, rest.get("y", rest), weights
    if isinstance(item, tuple | list) and 1 <= len(item) <= 3:
        x, y, weights = (*item, None, None)[:3]
        return x, y, weights
    if is_array(item):
        return item, None, None
    raise DataError(
        f"an item of the data is {_shown(item)}; expected (x, y), (x, y, weights), or a mapping "
        f"with keys {', '.join(names)} and y."
    )


def _shown(item: Any) -> str:
    if isinstance(item, tuple | list):
        return f"a {type(item).__name__} of {len(item)}"
    if isinstance(item, Mapping):
        return f"a mapping of {', '.join(map(str, item))}"[:80]
    return f"of type {type(item).__name__}"


def scale_of_bytes(sample: Mapping[str, np.ndarray]) -> dict[str, Scale]:
    """Scales of u8 inputs by field of a sample, as in `plain_rows`."""
    return {
        name: BYTES
        for name, array in sample.items()
        if name not in ("y", "w") and array.dtype == np.uint8
    }


def check_bytes(label: str, name: str, dtype: np.dtype, scaled: bool) -> None:
    """Refuse data of which only some samples are u8, because those are scaled.

    Raises:
      DataError: names the sample and both types.
    """
    if name not in ("y", "w") and (dtype == np.uint8) != scaled:
        other = "others are not" if dtype == np.uint8 else "others are uint8"
        raise DataError(
            f"{label}: {name} is {dtype}, {other}; uint8 is scaled from 0..255 to 0..1. Use one "
            "type for all samples."
        )


def _indexed(data: Any) -> bool:
    """Whether it has items by index; torch's IterableDataset only inherits a method that fails."""
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        return False
    try:
        data[0]
    except NotImplementedError:
        return False
    except Exception:  # reported where the item is used
        return True
    return True


def _indexed_items(data: Any) -> Iterator[Any]:
    return (_item(data, index) for index in range(len(data)))


def _item(data: Any, index: int) -> Any:
    try:
        return data[index]
    except (IndexError, KeyError, TypeError) as error:
        raise DataError(
            f"{type(data).__name__}: no item {index} ({error!r}). Pass a list or a dataset."
        ) from error


def _is_item(value: Any) -> bool:
    return isinstance(value, tuple | list | Mapping) and not (
        isinstance(value, list) and value and not hasattr(value[0], "shape")
    )


def _is_sample(item: Any, shapes: Shapes) -> bool:
    x, _, _ = batch_of(item, tuple(shapes))
    inputs = named_inputs(x, tuple(shapes), "item 0 of the data")
    return all(as_samples(f"input {n!r}", inputs[n], *layout)[1] for n, layout in shapes.items())
