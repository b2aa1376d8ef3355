"""Parses the header of an untrusted .npy array."""

import io
import math
import os
from dataclasses import dataclass

import numpy as np

from edgetrain.errors import DataError
from edgetrain.units.files import open_regular

from ..rows import FileRows, FortranRows, Rows
from .reading import file_size

HEAD_NBYTES = 2**14  # numpy itself stops at headers of 10,000 bytes
_MAX_ELEMENTS = 2**48
_WORD_NBYTES = 4096  # of one string


@dataclass(frozen=True)
class NpyHeader:
    """dtype, shape, order and data offset (bytes) of an array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Size of the data."""
        return math.prod(self.shape) * self.dtype.itemsize


def parse_npy_header(head: bytes, name: str, *, words: bool = False) -> NpyHeader:
    """Read the header of a .npy file.

    Args:
      head: the first `HEAD_NBYTES` of the file, or all of a shorter one.
      name: file name for messages.
      words: accept strings.
    Raises:
      DataError: not a .npy file, or not an array of numbers with at least one axis.
    """
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"format version {version}; expected (1, 0) or (2, 0)")
    except Exception as error:  # numpy parses with ast, which may raise anything on garbage
        raise DataError(
            f"{name}: not a .npy array ({_first_line(error)}). Save it with numpy.save."
        ) from None
    is_text = words and dtype.kind == "U" and dtype.itemsize <= _WORD_NBYTES
    if not is_text and (dtype.kind not in "biuf" or dtype.itemsize > 8):
        raise DataError(
            f"{name}: values of type {str(dtype)[:40]}; expected integers or floats of at most "
            f"8 bytes. Convert them before saving{', such as y.astype(str)' * (dtype.kind == 'O')}."
        )
    if not shape or not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 32:
        raise DataError(f"{name}: shape {str(shape)[:80]}; expected (samples, ...). Reshape it.")
    if math.prod(size or 1 for size in shape) > _MAX_ELEMENTS:
        raise DataError(f"{name}: shape {str(shape)[:80]} is impossibly large. Save it again.")
    return NpyHeader(dtype, shape, bool(fortran), stream.tell())


def rows_at(path: str | os.PathLike[str], header: NpyHeader) -> Rows:
    """The array at `header.offset` of a file.

    Raises:
      DataError: the file is too short.
    """
    scattered = header.fortran_order and len(header.shape) > 1 and header.nbytes > 0
    kind = FortranRows if scattered else FileRows
    return kind(path, header.offset, header.dtype, header.shape)


def npy_rows(path: str | os.PathLike[str]) -> Rows:
    """The samples of a .npy file, read on demand.

    Raises:
      DataError: the file is missing, malformed or truncated.
    """
    size = file_size(path, "a .npy file")
    with open_regular(path) as file:
        header = parse_npy_header(file.read(HEAD_NBYTES), os.fspath(path))
    if size != header.offset + header.nbytes:
        raise DataError(
            f"{os.fspath(path)}: {size} bytes; expected {header.offset + header.nbytes} for "
            f"{header.dtype.name} {list(header.shape)}. Save it again."
        )
    return rows_at(path, header)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
