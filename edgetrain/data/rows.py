"""Samples of one field by index, from an array or a file.

Files are read row by row, not mapped: truncating a mapped file would kill the process with a
signal, pages of a mapping count as memory of the process until the kernel reclaims them, and a
32-bit device cannot map large files at all.
"""

import math
import os
import weakref
from _thread import allocate_lock  # threading takes a quarter of a megabyte
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from edgetrain.errors import DataError
from edgetrain.units.files import open_regular

from .files.reading import file_size

_READ_NBYTES = 2**13  # about as many bytes as can be copied in the time of one read


class Rows(Protocol):
    """n samples of one shape and dtype."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, *sample shape)."""

    @property
    def dtype(self) -> np.dtype:
        """As stored; any byte order."""

    def take(self, indices: np.ndarray) -> np.ndarray:
        """A new array [len(indices), *sample shape]; `indices` must be in range."""


def is_array(value: object) -> bool:
    """Whether a value is an array or a tensor: it has a shape, and numpy can read it."""
    return hasattr(value, "__array__") and hasattr(value, "shape")


class ArrayRows:
    """Rows of an array in memory.

    If the array is mapped from a file, the file's size is checked before each access: reading
    truncated bytes would kill the process.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype
        self._mapped = _mapped(array)

    def take(self, indices: np.ndarray) -> np.ndarray:
        if self._mapped is not None:
            path, needed = self._mapped
            size = file_size(path, "the file of a mapped array")
            if size < needed:
                raise DataError(
                    f"{path}: {size} bytes; expected {needed}: it was truncated while in use. "
                    f"Restore it and start again."
                )
        return np.asarray(self._array[indices])


def _mapped(array: np.ndarray) -> tuple[str, int] | None:
    """The file an array is mapped from and its required size; None: not mapped."""
    result = None
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.filename is not None:
            result = os.fspath(base.filename), base.offset + base.nbytes
        base = base.base
    return result


class FileRows:
    """Rows in C order at an offset in a file; only requested rows are read.

    Args:
      offset: of row 0, in bytes.
      shape: (n, *sample shape).
    Raises:
      DataError: the file is too short for `shape`.
    """

    def __init__(
        self, path: str | os.PathLike[str], offset: int, dtype: np.dtype, shape: tuple[int, ...]
    ) -> None:
        self.path, self.offset, self.dtype, self.shape = Path(path), offset, dtype, shape
        self._row_nbytes = math.prod(shape[1:]) * dtype.itemsize
        self._lock = allocate_lock()
        size = file_size(path, f"an array of {dtype.name} {list(shape)}")
        needed = offset + shape[0] * self._row_nbytes
        if size < needed:
            raise DataError(
                f"{path}: {size} bytes; expected {needed} for an array of {dtype.name} "
                f"{list(shape)}. It is truncated: download it again."
            )
        self._file = open_regular(path, buffering=0)  # open as long as the rows exist
        weakref.finalize(self, self._file.close)

    def take(self, indices: np.ndarray) -> np.ndarray:
        raw = np.empty((len(indices), self._row_nbytes), np.uint8)
        places = indices.tolist()
        with self._lock:
            if len(places) > 1 and places == [*range(places[0], places[0] + len(places))]:
                self._read_at(places[0] * self._row_nbytes, raw)
            else:
                for row, place in zip(raw, places, strict=True):
                    self._read_at(place * self._row_nbytes, row)
        return raw.view(self.dtype).reshape(len(indices), *self.shape[1:])

    def _read_at(self, start: int, out: np.ndarray) -> None:
        """Fill `out`, contiguous, from `start` bytes into the array."""
        self._file.seek(self.offset + start)
        result = self._file.readinto(out.data.cast("B"))  # type: ignore[attr-defined]
        if result != out.nbytes:
            raise DataError(
                f"{self.path}: ends before byte {self.offset + start + out.nbytes}: it changed "
                "since it was opened. Start again."
            )


class FortranRows(FileRows):
    """Rows of an array in Fortran order, where each sample is scattered over the file.

    If the requested samples are close together, one read per element position fetches them all;
    otherwise each value needs its own read, which is slow for large arrays. Arrays saved in C
    order are read sample by sample.
    """

    def take(self, indices: np.ndarray) -> np.ndarray:
        columns = math.prod(self.shape[1:])
        out = np.empty((len(indices), columns), self.dtype)
        if not len(indices):
            return out.reshape(0, *self.shape[1:])
        low, high = int(indices.min()), int(indices.max()) + 1
        together = (high - low) * self.dtype.itemsize <= len(indices) * _READ_NBYTES
        places = [(low, high)] if together else [(k, k + 1) for k in indices.tolist()]
        result = np.empty(sum(stop - start for start, stop in places), self.dtype)
        with self._lock:
            for column in range(columns):
                start_of = 0
                for start, stop in places:
                    part = result[start_of : start_of + stop - start]
                    self._read_at((column * self.shape[0] + start) * self.dtype.itemsize, part)
                    start_of += stop - start
                out[:, column] = result[indices - low] if together else result
        sample_axes = range(len(self.shape) - 1, 0, -1)
        return out.reshape(len(indices), *self.shape[:0:-1]).transpose(0, *sample_axes)


class JoinedRows:
    """Concatenation of several Rows with the same sample shape and dtype."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0] + [part.shape[0] for part in parts])
        self.shape = (int(self._starts[-1]), *parts[0].shape[1:])
        self.dtype = parts[0].dtype
        assert all((p.shape[1:], p.dtype) == (self.shape[1:], self.dtype) for p in parts)

    def take(self, indices: np.ndarray) -> np.ndarray:
        out = np.empty((len(indices), *self.shape[1:]), self.dtype)
        owner = np.searchsorted(self._starts, indices, side="right") - 1
        for number in np.unique(owner):
            chosen = owner == number
            out[chosen] = self._parts[number].take(indices[chosen] - self._starts[number])
        return out
