"""Opening files that somebody else may have put there.

A name may stand for a FIFO, on which `open` waits for ever, or for a device. A link is followed if
the user named it, and refused under a name that we chose: in a directory that came from elsewhere
it could lead to any file of the user's. tests/test_opening.py lists what is opened otherwise.
"""

import errno
import os
import stat
from typing import BinaryIO

Path = str | os.PathLike[str]
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegular(OSError):
    """`filename` is `found` instead of a regular file with one name; `strerror` says it."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(errno.EINVAL, f"it is {found}, not a regular file", os.fspath(path))


def refusal(error: OSError | ValueError) -> str:
    """Why a path could not be opened or made, in words that no Python version changes.

    Args:
      error: as `os.stat`, `os.open` or `os.mkdir` raised it; a ValueError means the name itself.
    """
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    if isinstance(error, UnicodeError):
        return "the name has characters that this file system cannot store"
    return "the name contains a null byte"


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")


def check_regular(path: Path, *, links: bool = True) -> os.stat_result:
    """The status of a regular file, which is not opened: opening a device may do something.

    Args:
      links: a link at the end of `path` is followed; without, it is refused.
    Raises:
      NotRegular: it is something else.
      OSError: nothing is there, or it cannot be reached.
    """
    found = os.stat(path, follow_symlinks=links)
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(path, _kind(found.st_mode))
    return found


def open_handle(path: Path, flags: int = os.O_RDONLY, *, links: bool = True) -> int:
    """The descriptor of a regular file; it never waits.

    Args:
      flags: of os.open; a file that O_CREAT makes gets the mode 0o666 less the umask.
      links: as in `check_regular`.
    Raises:
      NotRegular, OSError: as in `check_regular`; no right to open it.
    """
    try:
        check_regular(path, links=links)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    # What was looked at may have been exchanged since: the flags keep links and FIFOs harmless.
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    handle = os.open(path, flags, 0o666)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise NotRegular(path, _kind(mode))
    return handle


def open_regular(path: Path, *, links: bool = True, buffering: int = -1) -> BinaryIO:
    """A regular file, open for reading.

    Args:
      buffering: as in `open`.
    Raises:
      NotRegular, OSError: as in `open_handle`.
    """
    return open(open_handle(path, links=links), "rb", buffering)  # type: ignore[return-value]


def read_regular(path: Path, *, links: bool = True, most: int = 2**26) -> bytes:
    """The bytes of a regular file.

    Args:
      most: bytes; a larger file is not read.
    Raises:
      NotRegular, OSError: as in `open_handle`; EFBIG where it is larger than `most`.
    """
    with open_regular(path, links=links) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes", os.fspath(path))
    return data


def create_file(path: Path) -> BinaryIO:
    """A new file, open for writing.

    Raises:
      FileExistsError: the name is taken, be it by a link that leads nowhere.
      OSError: it cannot be made.
    """
    return open(path, "xb")


def sync_directory(path: Path) -> None:
    """Flush the names in a directory to the disk, where its file system can.

    Raises:
      OSError: the disk failed.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
