"""A Program's file while arrays look at its bytes: what happens to it is told, not suffered.

A file that is moved, removed or replaced by another of its name lives on in what was mapped. One
that is cut short ends the process at the first byte that is gone, and one that is written over
gives other weights; a look at its size and time before the bytes are read finds both.
"""

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

from ..errors import RunError
from .container_header import PREFIX_NBYTES

Path = str | os.PathLike[str]
_MARK = "edgetrain_file"  # attribute of the memmap that all arrays of a file come from


class MappedFile:
    """One file that was proved whole and is mapped.

    Args:
      path: as it was given, for messages.
      file: open; another handle of it is kept.
      prove: whether what a path leads to is whole.
    """

    def __init__(self, path: Path, file: BinaryIO, prove: Callable[[str], bool]) -> None:
        self._path, self._handle = os.fspath(path), os.dup(file.fileno())
        self._prove = prove
        weakref.finalize(self, os.close, self._handle)
        self._seen, self._digest = self._stamp(), self._recorded()

    def _stamp(self) -> tuple[int, int]:
        found = os.fstat(self._handle)
        return found.st_size, found.st_mtime_ns

    def _recorded(self) -> bytes:
        """The header's beginning, which holds the digest of the whole file."""
        return os.pread(self._handle, 8 + PREFIX_NBYTES, 0)

    def check(self) -> None:
        """Prove that the file holds what it held: a microsecond where it was left alone.

        Raises:
          RunError: it was cut short or written over.
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
        self._seen = stamp  # touched, or written over with the same

    def _is_as_it_was(self) -> bool:
        place = f"/proc/self/fd/{self._handle}"
        place = place if os.path.exists(place) else self._path
        return self._recorded() == self._digest and self._prove(place)


def mark(array: np.memmap, file: MappedFile) -> None:
    """Have `files_of` find the file of an array that maps it, and of all its views."""
    setattr(array, _MARK, file)


def files_of(arrays: Iterable[Any]) -> tuple[MappedFile, ...]:
    """The files that arrays look at."""
    found: dict[int, MappedFile] = {}
    for array in arrays:
        base = array
        while isinstance(base, np.ndarray):
            file = getattr(base, _MARK, None)
            if file is not None:
                found[id(file)] = file
                break
            base = base.base
    return tuple(found.values())


def check_files(arrays: Mapping[str, Any]) -> None:
    """Raises the RunError of `MappedFile.check` before arrays of a file are read."""
    for file in files_of(arrays.values()):
        file.check()
