"""What every data source is: samples by index, written into buffers that belong to the caller."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from edgetrain.errors import DataError

from .check import check_floats, check_integers, check_known
from .files import unreadable
from .permute import permuted

_CHUNK_NBYTES = 2**18  # of transients while filling, however large the microbatch


@dataclass(frozen=True)
class Field:
    """One input or target of a sample.

    Attributes:
      shape: of one sample; () for a number.
      dtype: float32 or int64: what the values mean by themselves.
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Values of one sample."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Scale:
    """value * factor + shift in fp32; both broadcast against one sample."""

    factor: np.ndarray
    shift: np.ndarray

    @staticmethod
    def normalised(mean: object, std: object, full: float) -> "Scale":
        """Bring 0..full to 0..1, then subtract `mean` and divide by `std`."""
        factor = 1.0 / (np.asarray(std, np.float64) * full)
        shift = -np.asarray(mean, np.float64) / np.asarray(std, np.float64)
        return Scale(factor.astype(np.float32), shift.astype(np.float32))

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """A new fp32 array, shape of `rows`."""
        scaled = rows * self.factor
        scaled += self.shift
        return scaled


@dataclass(frozen=True)
class Options:
    """How to open a source.

    Attributes:
      test_fraction: share of the samples that become the test split where there is none.
      label: csv: name of the column that is the target; None takes the last one.
      augment: cifar10: crop and flip while training.
      allow_nonfinite: pass infinities and NaN on to the model.
    """

    test_fraction: float = 0.2
    label: str | None = None
    augment: bool = True
    allow_nonfinite: bool = False


class Source(ABC):
    """Samples of one split. A new kind of source implements `read`.

    Attributes:
      name: for messages.
      n: samples.
      fields: by name; the target is "y", a single input is "x".
      classes: labels lie in [0, classes); None where y is no class.
      split: "train" or "test".
      scale: by field; applied where the buffer is of floats. Buffers of integers get the
        stored values.
      limits: by field; integers must lie in [0, limit). Set where the format says so.
      ignore_index: a value of "y" that its limit does not touch.
      allow_nonfinite: do not refuse infinities and NaN.
    """

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
        self.limits = dict(limits or {})
        self._asked: dict[str, int] = {}  # limits that do not come from the data itself
        self.ignore_index: int | None = None
        self.allow_nonfinite = False
        self.reopen: Callable[[str], Source] | None = None

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

    def where(self, index: int) -> str:
        """How a message calls a sample."""
        return f"sample {index}"

    def check_limits(self, limits: Mapping[str, int], ignore_index: int | None = None) -> None:
        """From now on refuse integers outside [0, limit), before they reach the model.

        Args:
          limits: by field: classes of the model's output, rows of an embedding table.
          ignore_index: a value of "y" that is let through.
        Raises:
          DataError: the source has no such field.
        """
        for name, limit in limits.items():
            check_known(self.name, name, self.fields)
            self.limits[name] = self._asked[name] = limit
        self.ignore_index = ignore_index

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
          out: by field: float16/32/64 or int32/64 [k, ...] with as many values per sample as
            the field has; the shape may differ ([k, 64] takes a (1, 8, 8) field).
          key: (seed, epoch); with the index it fixes every random choice.
          train: augment, where the source does that.
        Raises:
          DataError: an unknown field, a size that does not fit, a value out of its limits or
            of the buffer's range, a non-finite value, a damaged file.
        """
        indices = np.asarray(indices, np.int64)
        assert indices.ndim == 1 and (not indices.size or indices.min() >= 0), indices
        assert not indices.size or indices.max() < self.n, (indices.max(), self.n)
        names = tuple(out)
        for name, target in out.items():
            self._check_buffer(name, target, len(indices))
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
        if self.reopen is None:
            raise DataError(f"{self.name}: has only the {self.split} split. Open the other one.")
        other = self.reopen(split)
        other.check_limits(self._asked, self.ignore_index)
        other.allow_nonfinite = self.allow_nonfinite
        return other

    def _rows_per_chunk(self, names: tuple[str, ...]) -> int:
        nbytes = sum(self.fields[name].size * 8 for name in names)
        return max(1, _CHUNK_NBYTES // max(1, nbytes))

    def _check_buffer(self, name: str, target: np.ndarray, count: int) -> None:
        check_known(self.name, name, self.fields)
        found = self.fields[name]
        per_sample = int(np.prod(target.shape[1:], dtype=np.int64))
        if target.ndim < 1 or target.shape[0] != count or per_sample != found.size:
            raise DataError(
                f"{self.name}: field {name!r} has shape {list(found.shape)} per sample; the model "
                f"expects {list(target.shape[1:])}. Use data or a model of the other's shape."
            )

    def _store(self, name: str, rows: np.ndarray, target: np.ndarray, part: np.ndarray) -> None:
        def label(row: int) -> str:
            return f"{self.name}: {self.where(int(part[row]))}: field {name!r}"

        limit = self.limits.get(name)
        if limit is not None or target.dtype.kind != "f":
            ignored = self.ignore_index if name == "y" else None
            check_integers(rows, target.dtype, limit, ignored, label)
        if target.dtype.kind == "f" and name in self.scale:
            rows = self.scale[name].apply(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            target[...] = rows.reshape(target.shape)
        if target.dtype.kind == "f" and not self.allow_nonfinite:
            check_floats(rows, target, label)


class Subset(Source):
    """Some samples of another source: the front or the rest of a fixed shuffled order.

    The choice depends on the number of samples alone and takes no memory.
    """

    _SEED = 0x73706C6974  # fixed for ever: another one would move samples between the splits

    def __init__(self, whole: Source, split: str, test_fraction: float) -> None:
        if not 0.0 < test_fraction < 1.0 or whole.n < 2:
            raise DataError(
                f"{whole.name}: cannot hold out {test_fraction:g} of {whole.n} samples; expected a "
                "fraction between 0 and 1, and two samples at least. Give more data."
            )
        held = min(max(1, round(whole.n * test_fraction)), whole.n - 1)
        n = held if split == "test" else whole.n - held
        super().__init__(
            whole.name,
            n,
            whole.fields,
            classes=whole.classes,
            split=split,
            scale=whole.scale,
            limits=whole.limits,
        )
        self._whole, self._start = whole, 0 if split == "test" else held

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        return self._whole.read(names, self._inner(indices), key, train)

    def where(self, index: int) -> str:
        return self._whole.where(int(self._inner(np.array([index]))[0]))

    def _inner(self, indices: np.ndarray) -> np.ndarray:
        return permuted(self._SEED, 0, indices + self._start, self._whole.n)
