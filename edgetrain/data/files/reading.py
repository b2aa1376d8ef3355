"""Looking at a file before believing it: kind, size, and messages that name it."""

import os
from pathlib import Path

from edgetrain.errors import DataError
from edgetrain.units.files import check_regular, refusal


def file_size(path: str | os.PathLike[str], expected: str) -> int:
    """Bytes of a regular file.

    Args:
      expected: what should be there, for the message.
    Raises:
      DataError: it is missing, unreadable or no regular file.
    """
    try:
        status = check_regular(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{os.fspath(path)}: {refusal(error)}; expected {expected}. Check the path."
        ) from error
    if not os.access(path, os.R_OK):
        raise DataError(f"{os.fspath(path)}: not readable; expected {expected}. Give read access.")
    return status.st_size


def directory(path: str | os.PathLike[str], expected: str) -> Path:
    """`path` as a directory.

    Raises:
      DataError: there is none.
    """
    if not os.path.isdir(path):
        found = "not a directory" if os.path.exists(path) else "no such directory"
        raise DataError(f"{os.fspath(path)}: {found}; expected {expected}. Check the path.")
    return Path(path)


def unreadable(name: str, error: OSError) -> DataError:
    """What to raise when the system refuses to read (no rights, a broken disk)."""
    where = f" ({error.filename})" if error.filename else ""
    return DataError(
        f"{name}: cannot be read: {error.strerror or error}{where}. Check the rights and the disk."
    )
