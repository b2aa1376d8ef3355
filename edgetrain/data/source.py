"""What every data source is: samples by index, written into buffers that belong to the caller."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgetrain.errors import DataError

from .checks.layout import check_layout
from .checks.values import Label, check_floats, check_integers, check_known
from .files.reading import unreadable

_CHUNK_NBYTES = 2**18  # of transients while filling, however large the microbatch


class Field(NamedTuple):
    """One input or target of a sample.

    Attributes:
      shape: of one sample; () for a number.
      dtype: float32 or int64: what the values mean by themselves.
      flat: they have one order only, so that one axis may stand for several (`check_layout`).
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    flat: bool = False

    @property
    def size(self) -> int:
        """Values of one sample."""
        return int(np.prod(self.shape, dtype=np.int64))


class Scale(NamedTuple):
    """value * factor + shift in fp32; both broadcast against one sample."""

    factor: np.ndarray
    shift: np.ndarray

    @staticmethod
    def normalised(mean: object, std: object, full: float) -> "Scale":
        """Bring 0..full to 0..1, then subtract `mean` and divide by `std`."""
        if isinstance(mean, float) and isinstance(std, float):
            # The same numbers; arithmetic of float64 that numpy has not done yet costs memory.
            numbers = 1.0 / (std * full), -mean / std
            return Scale(*(np.array(number, np.float32) for number in numbers))
        factor = 1.0 / (np.asarray(std, np.float64) * full)
        shift = -np.asarray(mean, np.float64) / np.asarray(std, np.float64)
        return Scale(factor.astype(np.float32), shift.astype(np.float32))

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """A new fp32 array, shape of `rows`."""
        scaled = rows * self.factor
        scaled += self.shift
        return scaled


class Options(NamedTuple):
    """How to open a source.

    Attributes:
      test_fraction: share of the samples that become the test split where there is none; 0:
        there is none then.
      label: csv: name of the column that is the target; None takes the last one.
      augment: True: as the source does it by itself (cifar10: crop and flip while training); a
        text says what is done, see `augment.Augmentation`.
      target: name of the input that is the target too; None: the data's own target.
      allow_nonfinite: pass infinities and NaN on to the model.
    """

    test_fraction: float = 0.0
    label: str | None = None
    augment: bool | str = True
    allow_nonfinite: bool = False
    target: str | None = None


class Source(ABC):
    """Samples of one split. A new kind of source implements `read`.

    Attributes:
      name: for messages.
      n: samples.
      fields: by name; the target is "y", a single input is "x".
      classes: labels lie in [0, classes); None where y is no class.
      split: "train" or "test".
      splits: those that `for_split` gives.
      held_out: samples of the same data that were taken away from this split.
      scale: by field; applied where the buffer is of floats. Buffers of integers get the
        stored values.
      limits: by field; integers must lie in [0, limit). Set where the format says so.
      ignore_index: a value of "y" that its limit does not touch.
      allow_nonfinite: do not refuse infinities and NaN.
      labels: names of the classes, where the data has them.
      note: what was done to samples to make them fit the model; "" where they are as they are.
    """

    note = ""

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
        self._asked: dict[str, int] = {}  # limits that do not come from the data itself
        self.ignore_index: int | None = None
        self.ignored: dict[str, int] = {}  # by field: a value that its limit does not touch
        self.labels: tuple[str, ...] | None = None
        self.allow_nonfinite = False
        self.directory: Path | None = None
        self.reopen: Callable[[str], Source] | None = None
        self._looked_at: object = None  # the limits that `check_values` last held against all

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.split}, {self.n:,} samples)"

    @abstractmethod
    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        """Stored values of some samples.

        Args:
          names: fields that are wanted.
          indices: int64 [k], in range.
          key: (seed, epoch), for random augmentation.
          train: whether to augment.
        Returns:
          An array [k, *field.shape] of any dtype for each name.
        Raises:
          DataError: naming file and sample.
        """

    def keep_in(self, directory: Path) -> None:
        """Keep samples that take long to make in a file there, while the process runs."""
        self.directory = directory.resolve()

    def where(self, index: int) -> str:
        """How a message calls a sample."""
        return f"sample {index}"

    def check_limits(
        self,
        limits: Mapping[str, int],
        ignore_index: int | None = None,
        ignored: Mapping[str, int] | None = None,
    ) -> None:
        """From now on refuse integers outside [0, limit), before they reach the model.

        Args:
          limits: by field: classes of the model's output, rows of an embedding table.
          ignore_index: a value of "y" that is let through.
          ignored: values of other fields that are.
        Raises:
          DataError: the source has no such field.
        """
        for name, limit in limits.items():
            check_known(self.name, name, self.fields)
            self.limits[name] = self._asked[name] = limit
            if name == "y" and self.labels is not None and len(self.labels) > limit:
                raise DataError(
                    f"{self.name}: {len(self.labels)} classes, {', '.join(self.labels)[:120]}; the "
                    f"model's output has {limit}. Take a model of as many, or leave classes out."
                )
        self.ignored = dict(ignored or {})
        self.ignore_index = self.ignored.get("y", ignore_index)

    def check_values(self) -> None:
        """Look for integers beyond their limits before training begins, once for each limits.

        Data that is large, or slow to read, is left to `fill`, which checks every value.

        Raises:
          DataError: naming the first such sample.
        """
        # A field with a value that is let through is left to `fill`.
        held = {n: limit for n, limit in self.limits.items() if n == "y" or n not in self.ignored}
        asked = held, self.ignore_index
        if self._looked_at == asked:
            return
        try:
            self.scan(*asked)
        except OSError as error:
            raise unreadable(self.name, error) from error
        self._looked_at = asked

    def scan(  # noqa: B027 - to look at nothing is a choice
        self, limits: Mapping[str, int], ignore_index: int | None
    ) -> None:
        """What `check_values` does; a source that can look ahead at little cost overrides it."""

    def name_targets(  # noqa: B027 - most data names its fields itself
        self, names: Collection[str]
    ) -> None:
        """Have fields of these names, targets of several losses, where the data can be read so."""

    def adapt(  # noqa: B027 - most data has one shape
        self, shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Make samples of these shapes, by field, from now on, where the data can be made so."""

    def check_layout(self, out: Mapping[str, np.ndarray]) -> None:
        """Samples have the shapes of these buffers, each [k, ...], but for axes of size 1.

        Raises:
          DataError: an unknown field, or one of another layout.
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
        """Write samples into buffers; transients stay below about 1 MiB or a few samples.

        Args:
          indices: integers [k] in [0, n).
          out: by field: float16/32/64 or int32/64 [k, ...], shapes as in `check_layout`.
          key: (seed, epoch); with the index it fixes every random choice.
          train: augment, where the source does that.
        Raises:
          DataError: an unknown field, a layout that does not fit, a value out of its limits or
            of the buffer's range, a non-finite value, a damaged file.
        """
        indices = np.asarray(indices, np.int64)
        assert indices.ndim == 1 and (not indices.size or indices.min() >= 0), indices
        assert not indices.size or indices.max() < self.n, (indices.max(), self.n)
        names = tuple(out)
        assert all(target.shape[:1] == indices.shape for target in out.values()), indices.shape
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

    def for_split(self, split: str) -> "Source":
        """The "train" or "test" samples of the same data.

        Raises:
          DataError: this source stands alone.
        """
        if split == self.split:
            return self
        if self.reopen is None or split not in self.splits:
            raise DataError(
                f"{self.name}: has only a {self.split} split, expected a {split} one. Open data "
                "that has it, or hold samples out."
            )
        other = self.reopen(split)
        other.check_limits(self._asked, self.ignore_index, self.ignored)
        other.allow_nonfinite = self.allow_nonfinite
        return other

    def _rows_per_chunk(self, names: tuple[str, ...]) -> int:
        nbytes = sum(self.fields[name].size * 8 for name in names)
        return max(1, _CHUNK_NBYTES // max(1, nbytes))

    def _label(self, name: str, part: np.ndarray) -> Label:
        """Rows of a chunk that holds the samples `part`, as messages call them."""
        return lambda row: f"{self.name}: {self.where(int(part[row]))}: field {name!r}"

    def _store(self, name: str, rows: np.ndarray, target: np.ndarray, part: np.ndarray) -> None:
        label = self._label(name, part)
        limit = self.limits.get(name)
        if limit is not None or target.dtype.kind != "f":
            ignored = self.ignore_index if name == "y" else self.ignored.get(name)
            check_integers(rows, target.dtype, limit, ignored, label)
        if target.dtype.kind == "f" and name in self.scale:
            rows = self.scale[name].apply(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            target[...] = rows.reshape(target.shape)
        if target.dtype.kind == "f" and not self.allow_nonfinite:
            check_floats(rows, target, label)
