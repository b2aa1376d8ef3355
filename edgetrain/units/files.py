"""Opens files that somebody else may have created.

A name may belong to a FIFO, on which `open` waits forever, or to a device. Links are followed if
the user named them, and refused under names that we chose: in a directory from elsewhere they could
lead to any of the user's files. tests/test_opening.py lists files that are opened in other ways.
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
    """`filename` is `found`, not a regular file; `strerror` says so."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(errno.EINVAL, f"it is {found}, not a regular file", os.fspath(path))


def refusal(error: OSError | ValueError) -> str:
    """Why a path could not be opened or created, worded the same in every Python version.

    Args:
      error: from `os.stat`, `os.open` or `os.mkdir`; a ValueError is about the name itself.
    """
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    if isinstance(error, UnicodeError):
        return "the name has characters that this file system cannot store"
    return "the name contains a null byte"


def unreachable(path: Path) -> str:
    """Why there is no file or directory at `path`, for messages; "" if there is one.

    os.path's isdir, isfile and exists are False then; pathlib's methods raise for some reasons.
    """
    try:
        os.stat(path)
    except FileNotFoundError:
        return "no such directory"
    except (OSError, ValueError) as error:
        return refusal(error)
    return ""


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")


def check_regular(path: Path, *, links: bool = True) -> os.stat_result:
    """The status of a regular file, without opening it: opening a device may have effects.

    Args:
      links: follow a link at the end of `path`; otherwise refuse it.
    Raises:
      NotRegular: it is not a regular file.
      OSError: it does not exist or cannot be reached.
    """
    result = os.stat(path, follow_symlinks=links)
    if not stat.S_ISREG(result.st_mode):
        raise NotRegular(path, _kind(result.st_mode))
    return result


def open_handle(path: Path, flags: int = os.O_RDONLY, *, links: bool = True) -> int:
    """A descriptor of a regular file; never blocks.

    Args:
      flags: for os.open; a file created by O_CREAT has mode 0o666 minus the umask.
      links: as in `check_regular`.
    Raises:
      NotRegular, OSError: as in `check_regular`, or no permission.
    """
    try:
        check_regular(path, links=links)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    # The file may have been replaced since: the flags make links and FIFOs harmless.
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    handle = os.open(path, flags, 0o666)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise NotRegular(path, _kind(mode))
    return handle


def open_regular(path: Path, *, links: bool = True, buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading.

    Args:
      buffering: as in `open`.
    Raises:
      NotRegular, OSError: as in `open_handle`.
    """
    return open(open_handle(path, links=links), "rb", buffering)  # type: ignore[return-value]


def read_regular(path: Path, *, links: bool = True, most: int = 2**26) -> bytes:
    """Read a regular file.

    Args:
      most: size limit in bytes; a larger file is not read.
    Raises:
      NotRegular, OSError: as in `open_handle`; EFBIG if it is larger than `most`.
    """
    with open_regular(path, links=links) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes", os.fspath(path))
    return data


def create_file(path: Path) -> BinaryIO:
    """Create a file for writing.

    Raises:
      FileExistsError: the name exists, even as a dangling link.
      OSError: it cannot be created.
    """
    return open(path, "xb")


def sync_directory(path: Path) -> None:
    """Flush a directory to disk, if the file system supports it.

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
