"""Reads a file back from its medium, bypassing the page cache."""

import contextlib
import mmap
import os
import zlib
from pathlib import Path

from edgetrain.units.files import open_handle

_CHUNK_NBYTES = 2**20


def medium_sum(path: Path) -> int:
    """CRC-32 of a file on its medium; it must have been flushed.

    Its cached pages are dropped and it is read without the cache; on a file system without one
    (tmpfs) it is read normally.

    Raises:
      OSError: it can't be read.
    """
    handle = open_handle(path, links=False)
    try:
        with contextlib.suppress(OSError, AttributeError):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    with contextlib.suppress(OSError, AttributeError):
        return file_sum(path, os.O_DIRECT)
    return file_sum(path)


def file_sum(path: Path, flags: int = 0) -> int:
    """CRC-32 of a file, opened with additional `flags`.

    Raises:
      OSError: it can't be read this way.
    """
    value, handle = 0, open_handle(path, os.O_RDONLY | flags, links=False)
    try:
        with mmap.mmap(-1, _CHUNK_NBYTES) as buffer:  # page-aligned, as O_DIRECT requires
            while count := os.readv(handle, [buffer]):
                value = zlib.crc32(buffer[:count], value)
    finally:
        os.close(handle)
    return value
