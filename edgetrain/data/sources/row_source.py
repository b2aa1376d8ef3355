"""Data sources whose samples are rows of arrays, in memory or in files."""

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np

from ..checks.values import check_floats, check_integers
from ..rows import Rows
from ..source import Field, Scale, Source, natural

SPLITS = ("train", "test")
VALIDATION = ("val", "valid", "validation")  # other names of the test split
Splits = Mapping[str, Callable[[], Source]]  # "train", and "test" if the data has one
_AHEAD_NBYTES = 2**30  # of a field: larger ones are only checked when used
_CHUNK_NBYTES = 2**20


class RowsSource(Source):
    """A source with one `Rows` per field.

    Args:
      rows: by field, all of the same length.
      classes, scale, limits: as in `Source`.
      shapes: sample shape by field, if it differs from that of the rows.
      flat: fields with `Field.flat`.
    Attributes:
      numbers_nbytes: float fields larger than this are only checked when they are used.
    """

    numbers_nbytes = 2**28

    def __init__(
        self,
        name: str,
        rows: Mapping[str, Rows],
        *,
        split: str,
        classes: int | None = None,
        scale: Mapping[str, Scale] | None = None,
        limits: Mapping[str, int] | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        flat: tuple[str, ...] = (),
    ) -> None:
        scale, shapes = dict(scale or {}), shapes or {}
        fields = {
            key: _field(shapes.get(key, part.shape[1:]), part.dtype, key in scale, key in flat)
            for key, part in rows.items()
        }
        n = next(iter(rows.values())).shape[0]
        super().__init__(name, n, fields, classes=classes, split=split, scale=scale, limits=limits)
        self.rows = dict(rows)

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        return {
            name: self.rows[name].take(indices).reshape(len(indices), *self.fields[name].shape)
            for name in names
        }

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        for name, limit in limits.items():
            rows = self.rows[name]
            ignored = ignore_index if name == "y" else self.ignored.get(name)
            row_nbytes = math.prod(rows.shape[1:]) * rows.dtype.itemsize
            if self.n * row_nbytes > _AHEAD_NBYTES:
                continue
            step = max(1, _CHUNK_NBYTES // max(1, row_nbytes))
            for start in range(0, self.n, step):
                part = np.arange(start, min(start + step, self.n))
                result = self.read((name,), part, (0, 0), False)[name]
                label, classes = self.sample_label(name, part), name == "y" or ignored is not None
                check_integers(result, result.dtype, limit, ignored, label, classes)

    def scan_numbers(self, names: Collection[str]) -> None:
        for name in names:
            rows = self.rows[name]
            row_nbytes = max(1, math.prod(rows.shape[1:]) * rows.dtype.itemsize)
            if rows.dtype.kind != "f" or self.n * row_nbytes > self.numbers_nbytes:
                continue
            step = max(1, _CHUNK_NBYTES // row_nbytes)
            for start in range(0, self.n, step):
                part = np.arange(start, min(start + step, self.n))
                result = rows.take(part)
                check_floats(result, result, self.sample_label(name, part))


def _field(shape: tuple[int, ...], dtype: np.dtype, scaled: bool, flat: bool) -> Field:
    return Field(shape, natural(dtype, scaled), flat)
