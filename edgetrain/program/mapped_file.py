"""Detects changes to a Program file while arrays map it.

If a file is moved, removed or replaced, the mapping keeps the old contents. If it is truncated, the
process dies at the first missing byte, and if it is overwritten, weights change. Checking its size
and modification time before its bytes are read detects both.
"""

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

from ..errors import RunError
from .container_header import PREFIX_NBYTES

Path = str | os.PathLike[str]
_MARK = "edgetrain_file"  # attribute of the memmap that all arrays of a file are views of


class MappedFile:
    """A verified, mapped file.

    Args:
      path: as given, for messages.
      file: the open file; a duplicate handle is kept.
      prove: checks whether the file at a path is intact.
    """

    def __init__(self, path: Path, file: BinaryIO, prove: Callable[[str], bool]) -> None:
        self._path, self._handle = os.fspath(path), os.dup(file.fileno())
        self._prove = prove
        weakref.finalize(self, os.close, self._handle)
        self._seen, self._digest = self._stamp(), self._recorded()

    def _stamp(self) -> tuple[int, int]:
        result = os.fstat(self._handle)
        return result.st_size, result.st_mtime_ns

    def _recorded(self) -> bytes:
        """The start of the header, with the digest of the whole file."""
        return os.pread(self._handle, 8 + PREFIX_NBYTES, 0)

    def check(self) -> None:
        """Check that the file hasn't changed; takes a microsecond if it wasn't touched.

        Raises:
          RunError: it was truncated or overwritten.
        """
        stamp = self._stamp()
        if stamp == self._seen:
            return
        if stamp[0] != self._seen[0] or not self._is_as_it_was():
            raise RunError(
                f"{self._path}: overwritten while in use ({stamp[0]} bytes; expected "
                f"{self._seen[0]}); weights are read from it. Restore the file and resume, and "
                "write other Programs to other files."
            )
        self._seen = stamp  # touched, or overwritten with the same bytes

    def _is_as_it_was(self) -> bool:
        place = f"/proc/self/fd/{self._handle}"
        place = place if os.path.exists(place) else self._path
        return self._recorded() == self._digest and self._prove(place)


def mark(array: np.memmap, file: MappedFile) -> None:
    """Let `files_of` find the file mapped by an array and all its views."""
    setattr(array, _MARK, file)


def files_of(arrays: Iterable[Any]) -> tuple[MappedFile, ...]:
    """The files mapped by these arrays."""
    result: dict[int, MappedFile] = {}
    for array in arrays:
        base = array
        while isinstance(base, np.ndarray):
            file = getattr(base, _MARK, None)
            if file is not None:
                result[id(file)] = file
                break
            base = base.base
    return tuple(result.values())


def check_files(arrays: Mapping[str, Any]) -> None:
    """Raise the RunError of `MappedFile.check` before arrays of a file are read."""
    for file in files_of(arrays.values()):
        file.check()
