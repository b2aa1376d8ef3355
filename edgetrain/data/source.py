"""The base class of data sources: samples by index, written into the caller's buffers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgetrain.errors import DataError
from edgetrain.units.public import Uncopied

from ..units.wording import counted
from .checks.layout import check_layout
from .checks.values import Label, check_floats, check_integers, check_known
from .files.reading import unreadable

CHANNELS = (1, 3)  # sizes of an axis that is taken for a picture's channels
_CHUNK_NBYTES = 2**18  # for temporary memory of `fill`, whatever the microbatch


class Field(NamedTuple):
    """One input or target of a sample.

    Attributes:
      shape: shape of one sample; () for a number.
      dtype: float32 or int64: the natural type of the values.
      flat: values have a natural order, so a single axis may stand for several (`check_layout`).
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    flat: bool = False

    @property
    def size(self) -> int:
        """Number of values in a sample."""
        return int(np.prod(self.shape, dtype=np.int64))


def natural(dtype: np.dtype, scaled: bool) -> np.dtype:
    """The natural type (`Field.dtype`) of values stored as `dtype`; scaled ones are floats."""
    return np.dtype(np.float32 if scaled or dtype.kind == "f" else np.int64)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


class Scale(NamedTuple):
    """value * factor + shift in fp32; both broadcast to one sample."""

    factor: np.ndarray
    shift: np.ndarray

    @staticmethod
    def normalised(mean: object, std: object, full: float) -> "Scale":
        """Scale 0..full to 0..1, then subtract `mean` and divide by `std`."""
        if isinstance(mean, float) and isinstance(std, float):
            # The same result; numpy's first float64 arithmetic would take memory.
            numbers = 1.0 / (std * full), -mean / std
            return Scale(*(np.array(number, np.float32) for number in numbers))
        factor = 1.0 / (np.asarray(std, np.float64) * full)
        shift = -np.asarray(mean, np.float64) / np.asarray(std, np.float64)
        return Scale(factor.astype(np.float32), shift.astype(np.float32))

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """A new fp32 array of the same shape."""
        scaled = rows * self.factor
        scaled += self.shift
        return scaled


BYTES = Scale.normalised(0.0, 1.0, 255.0)  # of uint8 values for float inputs


class Options(NamedTuple):
    """How to open a source.

    Attributes:
      test_fraction: fraction of samples for the test split, if the data has none; 0: no split.
      label: name of the target column of a csv file; None: the last one.
      augment: True: the source's default (cifar10: crop and flip); a string such as
        "flip,crop=4", see `augment.Augmentation`.
      target: name of the input that is also the target; None: the data's own target.
      allow_nonfinite: pass infinities and NaN to the model.
    """

    test_fraction: float = 0.0
    label: str | None = None
    augment: bool | str = True
    allow_nonfinite: bool = False
    target: str | None = None


class Source(Uncopied, ABC):
    """Samples of one split. A new kind of source implements `read`.

    Attributes:
      name: name for messages.
      n: number of samples.
      fields: by name; the target is "y", a single input "x".
      classes: labels are in [0, classes); None if y is not a class.
      split: "train" or "test".
      splits: the splits available with `for_split`.
      held_out: samples held out from this split.
      scale: by field, for float buffers. Integer buffers get the stored values.
      limits: by field; integers must be in [0, limit). Set if the format says so.
      ignore_index: a value of "y" exempt from the limit.
      allow_nonfinite: accept infinities and NaN.
      labels: class names, if known.
      rate: samples per second, of sounds.
      pictures: whether "x" is pictures, even if it has two axes.
      note: how samples were changed to fit the model, or what was guessed about a file; or "".
    """

    note = ""
    instead = "Open the data again, with open_data."

    def __init__(
        self,
        name: str,
        n: int,
        fields: Mapping[str, Field],
        *,
        classes: int | None = None,
        split: str = "train",
        scale: Mapping[str, Scale] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.name, self.n, self.fields = name, n, dict(fields)
        self.classes, self.split, self.scale = classes, split, dict(scale or {})
        self.splits: tuple[str, ...] = (split,)
        self.held_out = 0
        self.limits = dict(limits or {})
        self._asked: dict[str, int] = {}  # limits not from the data itself
        self.ignore_index: int | None = None
        self.ignored: dict[str, int] = {}  # by field: a value exempt from its limit
        self.labels: tuple[str, ...] | None = None
        self.rate: int | None = None
        self.allow_nonfinite = False
        self.pictures = False
        self.directory: Path | None = None
        self.reopen: Callable[[str], Source] | None = None
        self._looked_at: object = None  # the limits last checked by `check_values`

    def __copy__(self) -> "Source":
        result = type(self).__new__(type(self))
        vars(result).update(vars(self))
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.reopen is not None:  # of open_data, which opens files
            super().__reduce_ex__(protocol)
        return object.__reduce_ex__(self, protocol)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.split}, {self.n:,} samples)"

    @abstractmethod
    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        """Read the stored values of some samples.

        Args:
          names: fields to read.
          indices: int64 [k], in range.
          key: (seed, epoch), for random augmentation.
          train: whether to augment.
        Returns:
          An array [k, *field.shape] of any dtype for each name.
        Raises:
          DataError: names file and sample.
        """

    def keep_in(self, directory: Path) -> None:
        """Cache samples that are slow to compute in this directory, until the process ends."""
        self.directory = directory.resolve()

    def where(self, index: int) -> str:
        """The name of a sample in messages."""
        return f"sample {index}"

    def check_limits(
        self,
        limits: Mapping[str, int],
        ignore_index: int | None = None,
        ignored: Mapping[str, int] | None = None,
    ) -> None:
        """From now on, refuse integers outside [0, limit).

        Args:
          limits: by field: classes of the output, or rows of an embedding table.
          ignore_index: a value of "y" exempt from its limit.
          ignored: the same for other fields.
        Raises:
          DataError: the source has no such field.
        """
        for name, limit in limits.items():
            check_known(self.name, name, self.fields)
            self.limits[name] = self._asked[name] = limit
            if name == "y" and self.labels is not None and len(self.labels) > limit:
                raise DataError(
                    f"{self.name}: {counted(len(self.labels), 'class')}, "
                    f"{', '.join(self.labels)[:120]}; the model has {limit}. Use a model with as "
                    "many, or leave classes out."
                )
        self.ignored = dict(ignored or {})
        self.ignore_index = self.ignored.get("y", ignore_index)

    def check_values(self, names: Collection[str] | None = None) -> None:
        """Check for integers outside their limits, and for infinities and NaN, before training;
        once per set of limits.

        Large or slow data is left to `fill`, which checks every value.

        Args:
          names: fields that the model reads; None: all.
        Raises:
          DataError: names the first bad sample.
        """
        self._check_words(names or ())
        # Fields with an exempt value are left to `fill`.
        held = {n: limit for n, limit in self.limits.items() if n == "y" or n not in self.ignored}
        floats = [] if self.allow_nonfinite else self._floats(names)
        asked = held, self.ignore_index, floats
        if self._looked_at == asked:
            return
        try:
            self.scan(held, self.ignore_index)
            self.scan_numbers(floats)
        except OSError as error:
            raise unreadable(self.name, error) from error
        self._looked_at = asked

    def _check_words(self, names: Collection[str]) -> None:
        """Refuse words as targets of a loss without classes: it would take their numbers in
        alphabetical order. Two words may be 0 and 1."""
        words: Collection[str] = () if "y" in self._asked or "y" not in names else self.labels or ()
        if len(words) > 2 and not all(map(_is_number, words)):
            raise DataError(
                f"{self.name}: labels are words ({', '.join(words)[:120]}); expected numbers for "
                "this loss. Use cross_entropy, or give numbers as targets."
            )

    def scan(  # noqa: B027 - to look at nothing is a choice
        self, limits: Mapping[str, int], ignore_index: int | None
    ) -> None:
        """Implements `check_values`; a source that can check cheaply overrides it."""

    def scan_numbers(  # noqa: B027 - as `scan`
        self, names: Collection[str]
    ) -> None:
        """Implements `check_values` for fields of floats."""

    def _floats(self, names: Collection[str] | None) -> list[str]:
        return [
            name
            for name, field in self.fields.items()
            if field.dtype.kind == "f" and (names is None or name in names)
        ]

    def name_targets(  # noqa: B027 - most data names its fields itself
        self, names: Collection[str]
    ) -> None:
        """Provide fields with these names as targets of several losses, if the data allows it."""

    def adapt(  # noqa: B027 - most data has one shape
        self, shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        """From now on, produce samples of these shapes, if the data can be converted."""

    def check_layout(self, out: Mapping[str, np.ndarray]) -> None:
        """Check that samples fit these buffers [k, ...], up to axes of size 1.

        Raises:
          DataError: an unknown field, or a different layout.
        """
        for name, target in out.items():
            check_known(self.name, name, self.fields)
            field = self.fields[name]
            label = f"{self.name}: field {name!r}"
            check_layout(label, field.shape, target.shape[1:], flat=field.flat)

    def fill(
        self,
        indices: np.ndarray,
        out: Mapping[str, np.ndarray],
        *,
        key: tuple[int, int] = (0, 0),
        train: bool = False,
    ) -> None:
        """Write samples into buffers, with about 1 MiB or a few samples of temporary memory.

        Args:
          indices: integers [k] in [0, n).
          out: by field: float16/32/64 or int32/64 [k, ...], shapes as in `check_layout`.
          key: (seed, epoch); with the index, it determines every random choice.
          train: augment, if the source does.
        Raises:
          DataError: an unknown field, a wrong layout, a value outside its limits or the buffer's
            range, a non-finite value, or a damaged file.
        """
        indices, names = self._checked_indices(indices), tuple(out)
        for name, target in out.items():
            if target.shape[:1] != indices.shape:
                raise DataError(
                    f"{self.name}: buffer {name!r} has shape {list(target.shape)}; expected one "
                    f"row for each of {counted(len(indices), 'sample')}."
                )
        self.check_layout(out)
        step = self._rows_per_chunk(names)
        for start in range(0, len(indices), step):
            part = indices[start : start + step]
            try:
                rows = self.read(names, part, key, train)
            except OSError as error:
                raise unreadable(self.name, error) from error
            for name, target in out.items():
                self._store(name, rows[name], target[start : start + step], part)

    def _checked_indices(self, indices: np.ndarray) -> np.ndarray:
        """Sample numbers as int64 [k]. Raises DataError if they are not in [0, n)."""
        array = np.asarray(indices)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise DataError(
                f"{self.name}: indices {repr(indices)[:80]}; expected whole numbers, shape [k]."
            )
        for index in (array.min(), array.max()) if array.size else ():
            if not 0 <= index < self.n:
                raise DataError(
                    f"{self.name}: sample {index}; expected a number from 0 to {self.n - 1}."
                )
        return array.astype(np.int64, copy=False)

    def for_split(self, split: str) -> "Source":
        """The "train" or "test" samples of the same data.

        Raises:
          DataError: there is no such split.
        """
        if split == self.split:
            return self
        if self.reopen is None or split not in self.splits:
            raise DataError(
                f"{self.name}: no {split} split; found only {self.split}. Use data that has "
                "one, or hold samples out."
            )
        other = self.reopen(split)
        other.check_limits(self._asked, self.ignore_index, self.ignored)
        other.allow_nonfinite = self.allow_nonfinite
        return other

    def _rows_per_chunk(self, names: tuple[str, ...]) -> int:
        nbytes = sum(self.fields[name].size * 8 for name in names)
        return max(1, _CHUNK_NBYTES // max(1, nbytes))

    def sample_label(self, name: str, part: np.ndarray) -> Label:
        """Names for messages of the rows of a chunk with the samples `part`."""
        return lambda row: f"{self.name}: {self.where(int(part[row]))}: field {name!r}"

    def _store(self, name: str, rows: np.ndarray, target: np.ndarray, part: np.ndarray) -> None:
        label = self.sample_label(name, part)
        limit = self.limits.get(name)
        if limit is not None or target.dtype.kind != "f":
            ignored = self.ignore_index if name == "y" else self.ignored.get(name)
            classes = name == "y" or ignored is not None
            check_integers(rows, target.dtype, limit, ignored, label, classes)
        if target.dtype.kind == "f" and name in self.scale:
            rows = self.scale[name].apply(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            target[...] = rows.reshape(target.shape)
        if target.dtype.kind == "f" and not self.allow_nonfinite:
            check_floats(rows, target, label)
