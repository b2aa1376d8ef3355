"""`npz:FILE`: arrays by name. A compressed file is unpacked once, others are read in place."""

import dataclasses
import lzma
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import IO
from zlib import crc32

from edgetrain.errors import DataError
from edgetrain.units.files import open_regular

from ..files.npy_header import HEAD_NBYTES, NpyHeader, parse_npy_header, rows_at
from ..files.reading import file_size, kind_of
from ..files.unpack import Member, unpacked
from ..rows import Rows
from ..source import Options
from .arrays import splits_of
from .row_source import VALIDATION, Splits

_MAX_MEMBERS = 4096
_VALIDATION = (f"y_{name}" for name in VALIDATION)
_TARGETS = ("y", "y_train", "y_test", *_VALIDATION)  # may be words: class names
_VERIFIED_NBYTES = 2**32  # of a stored array: verifying more takes too long
_NAME = re.compile(r"\w[\w.-]{0,99}")
_CHUNK_NBYTES = 2**18
_LOCAL_NBYTES = 30  # of a zip file's local header before the name
_STREAM_ERRORS: tuple[type[Exception], ...] = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, struct.error,
    NotImplementedError, RuntimeError, ValueError, KeyError, IndexError, OverflowError,
)  # fmt: skip
_OPEN_ERRORS: tuple[type[Exception], ...] = (*_STREAM_ERRORS, OSError)


def open_npz(where: str, options: Options) -> Splits:
    """Open x, y and other inputs by name, or each of them with _train and _test.

    u8 inputs are scaled to [0, 1] for models with float inputs; anything else is unchanged.

    Raises:
      DataError: not an npz file, or as in `plain_rows`.
    """
    file_size(where, "an npz file")
    try:
        arrays = _list_arrays(where)
    except _OPEN_ERRORS as error:
        raise _damaged(where, error) from None
    if any(info.compress_type != zipfile.ZIP_STORED for info, _ in arrays.values()):
        return splits_of(where, _unpack(where, arrays), options)
    stored = {key: partial(_stored, where, info, head) for key, (info, head) in arrays.items()}
    return splits_of(where, stored, options)


def _list_arrays(where: str) -> dict[str, tuple[zipfile.ZipInfo, NpyHeader]]:
    result = {}
    with open_regular(where) as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > _MAX_MEMBERS:
            raise DataError(
                f"{where}: {len(members)} arrays; expected at most {_MAX_MEMBERS}, such as 'x' and "
                "'y'. Put the samples into one array."
            )
        for info in members:
            name, dot, suffix = info.filename.rpartition(".")
            if not dot or suffix != "npy":
                continue
            if not _NAME.fullmatch(name):
                raise DataError(
                    f"{where}: array name {name[:40]!r}; expected only letters, digits, '.', '_' "
                    "and '-'. Rename it."
                )
            if name in result:
                raise DataError(f"{where}: two arrays are named {name!r}. Save it again.")
            with archive.open(info) as stream:
                head = parse_npy_header(
                    stream.read(HEAD_NBYTES), f"{where}: {name}", words=name in _TARGETS
                )
            if head.offset + head.nbytes != info.file_size:
                raise DataError(
                    f"{where}: array {name!r} takes {info.file_size} bytes; expected "
                    f"{head.offset + head.nbytes} for {list(head.shape)}. Save it again."
                )
            result[name] = (info, head)
    return result


def _stored(where: str, info: zipfile.ZipInfo, head: NpyHeader) -> Rows:
    """Rows of an uncompressed array in the archive; verifies the checksum."""
    with open_regular(where) as file:
        file.seek(info.header_offset)
        local = file.read(_LOCAL_NBYTES)
    if len(local) < _LOCAL_NBYTES or local[:4] != b"PK\x03\x04":
        raise _damaged(where, zipfile.BadZipFile(f"no local header of {info.filename}"))
    name_nbytes, extra_nbytes = struct.unpack("<HH", local[26:30])
    start = info.header_offset + _LOCAL_NBYTES + name_nbytes + extra_nbytes
    status = os.stat(where)
    version, nbytes = (status.st_size, status.st_mtime_ns), info.file_size
    if nbytes <= _VERIFIED_NBYTES and _checksum(where, version, start, nbytes) != info.CRC:
        raise _damaged(where, zipfile.BadZipFile(f"wrong checksum of {info.filename}"))
    return rows_at(where, dataclasses.replace(head, offset=start + head.offset))


@lru_cache(maxsize=256)
def _checksum(where: str, version: tuple[int, int], start: int, nbytes: int) -> int:
    """CRC-32 of part of a file, computed once per version (size, modification time)."""
    crc = 0
    with open_regular(where) as file:
        file.seek(start)
        while nbytes > 0 and (part := file.read(min(nbytes, _CHUNK_NBYTES))):
            crc, nbytes = crc32(part, crc), nbytes - len(part)
    return crc


def _unpack(
    where: str, arrays: dict[str, tuple[zipfile.ZipInfo, NpyHeader]]
) -> dict[str, Callable[[], Rows]]:
    with open_regular(where) as file, zipfile.ZipFile(file) as archive:

        def opened(info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
            return lambda: archive.open(info)

        members = {
            f"{name}.npy": Member(opened(info), info.file_size)
            for name, (info, _) in arrays.items()
        }
        place = unpacked(where, members, _STREAM_ERRORS)
    return {
        name: partial(rows_at, Path(place, f"{name}.npy"), head)
        for name, (_, head) in arrays.items()
    }


def _damaged(where: str, error: Exception) -> DataError:
    reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
    with open_regular(where) as file:
        head = file.read(_LOCAL_NBYTES)
    if not zipfile.is_zipfile(where):
        if head.startswith(b"PK"):
            reason = "it is truncated or damaged"
        elif result := kind_of(head):
            reason = f"it is {result}"
    return DataError(
        f"{os.fspath(where)}: not a readable npz file ({reason}). Save it with numpy.savez."
    )
