"""One run in a directory at a time: a lock file that says which process holds it.

The kernel takes the lock (flock) from a process that ends, whatever ended it; the file then stays
behind with the name of a process that is gone, and the next run takes it over. Where the file
system has no such locks, the name alone decides: process number, host, boot and start time, so
that a number used again is not mistaken for the holder.
"""

import contextlib
import fcntl
import json
import os
import time
import weakref
from pathlib import Path
from typing import NamedTuple

from ...errors import UsageError
from ...units.files import NotRegular, open_handle

LOCK_FILE = "run.lock"
_PATIENCE = 50  # times 20 ms: how long a holder may take to write its name
_MAX_NBYTES = 4096


class Holder(NamedTuple):
    """A process, so that it is known again.

    Attributes:
      boot: of the kernel; pids: the namespace of process numbers; "" where the system has none.
      started: in the kernel's ticks since its boot; since: when it took the lock, local time.
    """

    pid: int
    host: str
    boot: str
    pids: str
    started: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since})"


class RunLock:
    """The lock of a run's directory, held from construction until `release`.

    Args:
      directory: exists and can be written.
    Attributes:
      replaced: the holder whose lock was taken over, or None.
    Raises:
      UsageError: another process, or another Trainer of this one, holds it.
      OSError: the file cannot be made, or something else has its name.
    """

    def __init__(self, directory: Path) -> None:
        self.replaced: Holder | None = None
        path = directory / LOCK_FILE
        for _ in range(_PATIENCE):
            handle = open_handle(path, os.O_RDWR | os.O_CREAT, links=False)
            try:
                _refuse_shared(path, handle)
                if self._take(directory, path, handle):
                    break
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)
            time.sleep(0.02)
        else:
            raise UsageError(_refusal(directory, "another process"))
        self._end = weakref.finalize(self, _release, path, handle, os.getpid())

    def _take(self, directory: Path, path: Path, handle: int) -> bool:
        """Whether the file is ours now; False: look again."""
        locked = _locked(handle)
        if locked and not _is_the_file(path, handle):
            return False  # the holder before removed it as we waited
        holder = _read(handle)
        gone = None if holder is None else _is_gone(holder)
        if locked is False:
            if holder is not None and not gone:
                raise UsageError(_refusal(directory, str(holder)))
            if gone:  # a child that it forked has the file open still
                path.unlink(missing_ok=True)
            return False
        # The lock of a machine that is not this one may be invisible here.
        elsewhere = holder is not None and gone is None and holder.boot != this_process().boot
        if holder is not None and (elsewhere or (locked is None and not gone)):
            hint = f" If it runs no longer, remove {path}."
            raise UsageError(_refusal(directory, str(holder)) + hint)
        self.replaced = holder
        text = json.dumps(this_process()._asdict()).encode()
        os.ftruncate(handle, 0)
        try:
            os.pwrite(handle, text, 0)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return True

    def release(self) -> None:
        """Remove the file; a second time does nothing."""
        self._end()


def this_process() -> Holder:
    """The process that asks."""
    return Holder(
        os.getpid(),
        os.uname().nodename,
        _text_of("/proc/sys/kernel/random/boot_id"),
        _pids(),
        _started(os.getpid()),
        time.strftime("%Y-%m-%d %H:%M:%S"),
    )


def _release(path: Path, handle: int, pid: int) -> None:
    """Remove and unlock; a forked child only lets go of its copy of the handle."""
    with contextlib.suppress(OSError):
        if os.getpid() == pid and _is_the_file(path, handle):
            path.unlink()
    with contextlib.suppress(OSError):
        os.close(handle)


def _refuse_shared(path: Path, handle: int) -> None:
    """Raises OSError: the file has another name, and writing would change that one, too."""
    if os.fstat(handle).st_nlink > 1:
        raise NotRegular(path, "a hard link to another file")


def _locked(handle: int) -> bool | None:
    """Whether the lock is ours; None where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_the_file(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except OSError:
        return False


def _read(handle: int) -> Holder | None:
    """Who wrote the file; None where nobody has yet, or not so that it can be read."""
    try:
        return Holder(**json.loads(os.pread(handle, _MAX_NBYTES, 0)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _is_gone(holder: Holder) -> bool | None:
    """Whether the process has ended; None where that cannot be told from here."""
    here = this_process()
    if holder.boot != here.boot:
        return True if holder.host == here.host else None
    if holder.pids != here.pids:
        return None
    if not holder.started:
        return not _exists(holder.pid) if holder.host == here.host else None
    return _started(holder.pid) != holder.started


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError, TypeError):
        return True
    return True


def _started(pid: int) -> str:
    """Start time of a living process; "" where there is none, or the system does not say."""
    fields = _text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _pids() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _refusal(directory: Path, who: str) -> str:
    return (
        f"{directory}: {who} trains into it now. Choose another directory, or go on when it has "
        "ended."
    )
