"""Files kept between runs: their directory, who may write there, and whether they are intact.

The files are code, or decide which code is made. So a directory that others may write to or own is
refused, and a file is used only if its checksum matches. The checksum covers its purpose and its
bytes, so damaged or swapped files are made again. Without a directory nothing is kept, and nothing
is left behind.
"""

import contextlib
import functools
import os
import stat
from pathlib import Path

from ...errors import warn
from ...units.sha import sha256

_SEAL_NBYTES = 32  # at the end of a file, so that other tools still read it as an object
FOLDERS = ("objects", "planner", "libraries")


@functools.cache
def directory() -> Path | None:
    """Where files are kept; None, with one warning, if no safe directory is writable.

    `EDGETRAIN_CACHE`, else `edgetrain` in the user's cache.
    """
    path = _chosen()
    if path is None:
        return None
    try:
        path = Path(os.path.realpath(path))
        _make(path)
        fault = _fault(path)
        if not fault:
            import tempfile

            with tempfile.TemporaryFile(dir=path):
                return path
        move = "Take that away (chmod go-w), or set EDGETRAIN_CACHE to a folder of your own."
    except OSError as error:
        fault = f"it cannot be written ({error.strerror})"
        move = "Set EDGETRAIN_CACHE to a folder that can be written."
    warn(f"cache {path} is not used: {fault}. Kernels are compiled anew in each process. {move}")
    return None


def read(name: str, identity: str) -> bytes | None:
    """The content kept as `name`; None if it is missing, damaged, or of another identity.

    Args:
      name: relative to the directory, in one of FOLDERS or at the top.
      identity: everything that the content depends on.
    """
    folder = directory()
    if folder is None:
        return None
    with contextlib.suppress(OSError), open(folder / name, "rb", opener=_without_waiting) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or _open_to_others(info):
            return None
        content = file.read()
        data, seal = content[:-_SEAL_NBYTES], content[-_SEAL_NBYTES:]
        return data if seal == _seal(identity, data) else None
    return None


def path_of(name: str, identity: str) -> Path | None:
    """Path of the file that `read` would return; None if `read` returns None."""
    folder = directory()
    return None if folder is None or read(name, identity) is None else folder / name


def write(name: str, identity: str, data: bytes) -> None:
    """Store `data` for later processes, completely or not at all. A full disk is not an error."""
    folder = directory()
    if folder is None:
        return
    import tempfile

    path = folder / name
    with contextlib.suppress(OSError):
        _make(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with open(handle, "wb") as file:
                file.write(data + _seal(identity, data))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)


def _seal(identity: str, data: bytes) -> bytes:
    name = identity.encode()
    return sha256(len(name).to_bytes(8, "little") + name + data).digest()


def _without_waiting(path: str, flags: int) -> int:
    """Open without blocking, in case a pipe has taken the file's place."""
    return os.open(path, flags | os.O_NONBLOCK)


def _chosen() -> Path | None:
    chosen = os.environ.get("EDGETRAIN_CACHE")
    if chosen:
        return Path(chosen)
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(shared) if shared else Path.home() / ".cache") / "edgetrain"
    except RuntimeError:  # a user without a home directory
        return None


def _make(path: Path) -> None:
    """Create the folder and its parents; new ones are private to this user, whatever the umask."""
    for place in (*reversed(path.parents), path):
        if not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)


def _fault(path: Path) -> str:
    """How others could put files there; "" if only this user and root can.

    Checks folders up to the home directory, or to the root if the path is not below it: anyone who
    can write above a home directory has other ways in. In a sticky folder such as /tmp, others
    cannot touch files that are not theirs.
    """
    inside = [path / name for name in FOLDERS if (path / name).is_dir()]
    above = list(path.parents)
    home = Path(os.path.realpath(os.path.expanduser("~")))
    if home in above:
        above = above[: above.index(home) + 1]
    for place in (path, *inside, *above):
        info = place.stat()
        if info.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to another user ({info.st_uid})"
        sticky = place in above and info.st_mode & stat.S_ISVTX
        if not sticky and _open_to_others(info):
            return f"others may write in {place} (mode {stat.S_IMODE(info.st_mode):o})"
    return ""


def _open_to_others(info: os.stat_result) -> bool:
    """Whether anyone but this user and root could have written here. A group with no other members
    doesn't count."""
    foreign = info.st_uid not in (0, os.geteuid())
    group = bool(info.st_mode & stat.S_IWGRP) and not _is_own_group(info.st_gid)
    return foreign or group or bool(info.st_mode & stat.S_IWOTH)


def _is_own_group(gid: int) -> bool:
    """Whether this is the user's private group, as systems with umask 002 create for everyone: it
    has the user's name and no other members."""
    import grp  # most folders are open to nobody else
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    named = group.gr_gid == user.pw_gid and group.gr_name == user.pw_name
    return named and set(group.gr_mem) <= {user.pw_name}
