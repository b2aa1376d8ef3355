"""Checks of a file's type and size, with messages that name it."""

import os
from pathlib import Path

from edgetrain.errors import DataError
from edgetrain.units.files import check_regular, refusal, unreachable

_STARTS = {
    b"PK\x03\x04": "a zip archive, such as npz or xlsx",
    b"\x93NUMPY": "a .npy file",
    b"\x1f\x8b": "a gzip archive",
    b"PAR1": "a Parquet file",
    b"\x89HDF": "an HDF5 file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
}


def kind_of(head: bytes) -> str:
    """The kind of file whose first bytes are `head`; "" if it may be text."""
    known = (kind for start, kind in _STARTS.items() if head.startswith(start))
    return next(known, "binary data" if b"\0" in head else "")


def file_size(path: str | os.PathLike[str], expected: str) -> int:
    """Size of a regular file in bytes.

    Args:
      expected: the expected contents, for the message.
    Raises:
      DataError: it is missing, unreadable or not a regular file.
    """
    try:
        status = check_regular(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{os.fspath(path)}: {refusal(error)}; expected {expected}. Check the path."
        ) from error
    if not os.access(path, os.R_OK):
        raise DataError(
            f"{os.fspath(path)}: no permission; expected {expected}. Grant read access."
        )
    return status.st_size


def directory(path: str | os.PathLike[str], expected: str) -> Path:
    """Check that `path` is a directory.

    Raises:
      DataError: it is not.
    """
    if not os.path.isdir(path):
        result = unreachable(path) or "not a directory"
        raise DataError(f"{os.fspath(path)}: {result}; expected {expected}. Check the path.")
    return Path(path)


def unreadable(name: str, error: OSError) -> DataError:
    """The error for a failed read (no permission, broken disk)."""
    where = f" ({error.filename})" if error.filename else ""
    return DataError(
        f"{name}: cannot be read: {error.strerror or error}{where}. Check permissions and the disk."
    )
