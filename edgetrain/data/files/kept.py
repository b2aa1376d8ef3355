"""Caches samples that are slow to compute in an unnamed temporary file."""

import os
from pathlib import Path

import numpy as np

MOST = 2**28  # most bytes of the file


class Kept:
    """A cache of float32 samples of one shape, up to MOST bytes.

    If the cache cannot be written (disk full, no directory), samples are computed each time.

    Args:
      count: number of samples.
      directory: location of the file, which disappears when the process ends.
    """

    def __init__(self, count: int, shape: tuple[int, ...], directory: Path) -> None:
        self._shape, self._nbytes = shape, 4 * int(np.prod(shape, dtype=np.int64))
        self._has = bytearray(min(count, MOST // max(1, self._nbytes)))
        self._file = -1
        flags = os.O_RDWR | getattr(os, "O_TMPFILE", 0)
        if self._has and flags != os.O_RDWR:
            try:
                self._file = os.open(directory, flags, 0o600)
            except OSError:  # a file system without such files
                self._has = bytearray()
        else:
            self._has = bytearray()

    def get(self, number: int) -> np.ndarray | None:
        """A cached sample, or None."""
        if number >= len(self._has) or not self._has[number]:
            return None
        result = os.pread(self._file, self._nbytes, number * self._nbytes)
        if len(result) != self._nbytes:
            return None
        return np.frombuffer(result, np.float32).reshape(self._shape)

    def put(self, number: int, sample: np.ndarray) -> None:
        """Cache a sample, if there is room."""
        if number >= len(self._has):
            return
        try:
            written = os.pwrite(self._file, sample.tobytes(), number * self._nbytes)
        except OSError:
            self._has = bytearray()
            return
        self._has[number] = written == self._nbytes

    def close(self) -> None:
        """Delete the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self._has = -1, bytearray()

    def __del__(self) -> None:
        self.close()
