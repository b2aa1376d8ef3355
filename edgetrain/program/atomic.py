"""Replaces a file completely or not at all, even if writing is interrupted.

The bytes are written to a hidden file in the same directory, which is flushed to disk and then
renamed to the target. The directory is flushed last, so the rename survives a power cut.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from edgetrain.errors import RunError, UsageError
from edgetrain.units.files import (
    NotRegular,
    check_regular,
    create_file,
    open_regular,
    refusal,
    sync_directory,
)

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
PREVIOUS_SUFFIX = ".previous"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_MAX_NAME = 200  # bytes of a target's name in a temporary's, which must fit the file system's 255
_TEMPORARY = re.compile(r"\..+\.edgetrain-[0-9a-f]{8}\.tmp")


def _sum(path: Path, medium: bool = False) -> int:
    """Checksum of a file, read from its medium or through the page cache."""
    from .medium import file_sum, medium_sum  # zlib and mmap, only needed to verify saves

    return medium_sum(path) if medium else file_sum(path)


def write_atomically(
    path: str | os.PathLike[str],
    write: Callable[[BinaryIO], None],
    keep_previous: bool = False,
    *,
    links: bool = True,
    verify: bool = False,
) -> None:
    """Replace the contents of `path` by whatever `write` writes to the seekable file it is given.

    Args:
      path: a new file or an existing regular file.
      write: called once; its exceptions are passed on after the clean-up.
      keep_previous: keep the old file as `<name>.previous`. One of the two exists at all times.
      links: follow a link at `path`; otherwise reject it: in a run's directory, which may belong to
        another user, it could point to any of the user's files.
      verify: read the file back from the medium before the old one is replaced.
    Raises:
      RunError: the disk is full, a limit on file sizes is reached, the directory is missing or
        read-only, or `path` is not a regular file. The old file is then unchanged.
    """
    target = Path(os.path.realpath(path)) if links else Path(path)
    temporary = _temporary_beside(target)
    try:
        _refuse_special(target, links)
        try:
            with create_file(temporary) as file:
                _lock(file)
                write(file)
                file.flush()
                written = _sum(temporary) if verify else 0
                os.fsync(file.fileno())
            if verify and _sum(temporary, medium=True) != written:
                raise OSError(errno.EIO, "the disk returned other bytes than were written")
            if keep_previous and target.exists():
                _keep(target)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(target.parent)
    except OSError as error:
        raise RunError(_explain(path, error)) from error


def exchange(new: Path, old: Path) -> None:
    """Swap the names of two directories of a file system, in one step if the system supports it.

    Otherwise `old` briefly has a temporary name.

    Raises:
      OSError: it failed; both have their old names.
    """
    names = os.fsencode(new), os.fsencode(old)
    with contextlib.suppress(AttributeError):  # other systems, and C libraries before 2018
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        if not rename(_HERE, names[0], _HERE, names[1], _EXCHANGE):
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(number, os.strerror(number), os.fspath(old))
    aside = new.with_name(f"{new.name}.aside")
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except OSError:
        os.rename(aside, old)
        raise
    os.rename(aside, new)


def check_target(path: str | os.PathLike[str], label: str, *, links: bool = True) -> None:
    """Check that `path` can be written, before the work that produces it.

    Args:
      label: its name in messages, such as "--out".
      links: as in `write_atomically`.
    Raises:
      UsageError: the directory is missing or read-only, the name is too long, or it is not a
        regular file.
      RunError: the disk is full.
    """
    try:
        target = Path(os.path.realpath(path)) if links else Path(path)
        _refuse_special(target, links)
        temporary = _temporary_beside(target)
        with create_file(temporary):
            temporary.unlink()
    except (OSError, ValueError) as error:
        raise unwritable(path, label, error) from error


def check_directory(path: Path, label: str) -> None:
    """Check that files can be written to the directory `path`, which need not exist yet.

    Args:
      label: its name in messages, such as "-o".
    Raises:
      UsageError, RunError: as in `check_target`.
    """
    near = next((place for place in (path, *path.parents) if os.path.lexists(place)), Path())
    if not os.path.isdir(near):
        error = NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        raise unwritable(near, label, error)
    missing = path.relative_to(near).parts
    check_target(near / missing[0] if missing else near / "MANIFEST.json", label)


def unwritable(
    path: str | os.PathLike[str], label: str, error: OSError | ValueError
) -> RunError | UsageError:
    """The error if `path` can't be created: its name is invalid, or the disk is full."""
    number = getattr(error, "errno", None) or 0
    kind = RunError if number in _FULL else UsageError
    reason = refusal(error)
    if isinstance(error, NotRegular):
        reason = f"{error.filename}: {reason}"
    return kind(f"{label} {os.fspath(path)!r}: cannot be written: {reason}. {_advice(number)}")


def clean_temporaries(directory: str | os.PathLike[str]) -> list[Path]:
    """Remove temporary files of killed writers in `directory`; files being written are kept.

    Returns:
      The removed files; empty if the directory can't be read or written.
    """
    removed = []
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    for name in names:
        path = Path(directory, name)
        if _TEMPORARY.fullmatch(name) and _remove_if_abandoned(path):
            removed.append(path)
    return removed


def previous_of(path: str | os.PathLike[str]) -> Path:
    """Where `write_atomically(path, ..., keep_previous=True)` keeps the previous file."""
    target = Path(path)
    return target.with_name(target.name + PREVIOUS_SUFFIX)


def _temporary_beside(target: Path) -> Path:
    name = os.fsdecode(os.fsencode(target.name)[:_MAX_NAME])
    return target.with_name(f".{name}.edgetrain-{os.urandom(4).hex()}.tmp")


def _refuse_special(target: Path, links: bool) -> None:
    with contextlib.suppress(FileNotFoundError):
        check_regular(target, links=links)


def _lock(file: BinaryIO) -> None:
    """Lock a file while it is written; some file systems don't support locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return


def _remove_if_abandoned(path: Path) -> bool:
    """Remove `path` unless a living process holds its lock; returns whether it was removed."""
    try:
        with open_regular(path, links=False) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except OSError:
        return False
    return True


def _keep(target: Path) -> None:
    """Keep `target` as `.previous`; without hard links (FAT) it is renamed."""
    previous = previous_of(target)
    link = _temporary_beside(previous)
    try:
        os.link(target, link)
    except OSError:
        os.replace(target, previous)
        return
    try:
        os.replace(link, previous)
    finally:
        # rename() of two links to one file does nothing and leaves the new name.
        link.unlink(missing_ok=True)


def _explain(path: str | os.PathLike[str], error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    kept = "; the old file is unchanged" if os.path.isfile(path) else ""
    return f"{os.fspath(path)}: cannot be written: {reason}{kept}. {_advice(error.errno or 0)}"


def _advice(number: int) -> str:
    return {
        errno.ENOSPC: "Free some space or write to another disk.",
        errno.EDQUOT: "Free some space or write to another disk.",
        errno.EFBIG: "Raise the limit on file sizes (ulimit -f) or write elsewhere.",
        errno.EROFS: "Write to a directory that is writable.",
        errno.EACCES: "Write to a directory that is writable.",
        errno.EPERM: "Write to a directory that is writable.",
        errno.ENOENT: "Create the directory first.",
        errno.ENOTDIR: "Choose a path inside a directory.",
        errno.EEXIST: "Choose a directory.",
        errno.ENAMETOOLONG: "Choose a shorter name.",
        errno.EINVAL: "Remove it, or choose another file.",
    }.get(number, "Write elsewhere.")
