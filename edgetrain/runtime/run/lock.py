"""A lock file, so that only one process at a time trains in a directory.

The kernel releases the lock (flock) when a process ends for any reason; the file then still names
that process, and the next run takes it over. If the file system has no locks, the contents decide:
process number, host, boot and start time, so a reused process number is not mistaken for the
holder.
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
_PATIENCE = 50  # times 20 ms: time for a holder to write its name
_MAX_NBYTES = 4096


class Holder(NamedTuple):
    """Identifies a process.

    Attributes:
      boot: boot id of the kernel.
      pids: namespace of process numbers; "" if the system has none.
      started: start time in kernel ticks since boot.
      since: when it took the lock, local time.
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
    """The lock of a run directory, held from construction until `release`.

    Args:
      directory: an existing, writable directory.
    Attributes:
      replaced: the ended process whose lock was taken over, or None.
    Raises:
      UsageError: another process, or another Trainer, holds it.
      OSError: the file cannot be created.
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
        """Whether we got the lock; False: try again."""
        locked = _locked(handle)
        if locked and not _is_the_file(path, handle):
            return False  # the previous holder removed it while we waited
        holder = _read(handle)
        gone = None if holder is None else _is_gone(holder)
        if locked is False:
            if holder is not None and not gone:
                raise UsageError(_refusal(directory, str(holder)))
            if gone:  # a forked child still has the file open
                path.unlink(missing_ok=True)
            return False
        # Locks of other machines may not be visible here.
        elsewhere = holder is not None and gone is None and holder.boot != this_process().boot
        if holder is not None and (elsewhere or (locked is None and not gone)):
            hint = f" If it is no longer running, remove {path}."
            raise UsageError(_refusal(directory, str(holder)) + hint)
        self.replaced = holder if gone else None
        text = json.dumps(this_process()._asdict()).encode()
        os.ftruncate(handle, 0)
        try:
            os.pwrite(handle, text, 0)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return True

    def release(self) -> None:
        """Release the lock; can be called twice."""
        self._end()


def this_process() -> Holder:
    """This process."""
    return Holder(
        os.getpid(),
        os.uname().nodename,
        _text_of("/proc/sys/kernel/random/boot_id"),
        _pids(),
        _started(os.getpid()),
        time.strftime("%Y-%m-%d %H:%M:%S"),
    )


def _release(path: Path, handle: int, pid: int) -> None:
    """Remove and unlock the file; a forked child only closes its copy of the handle."""
    with contextlib.suppress(OSError):
        if os.getpid() == pid and _is_the_file(path, handle):
            path.unlink()
    with contextlib.suppress(OSError):
        os.close(handle)


def _refuse_shared(path: Path, handle: int) -> None:
    """Raise OSError if the file is a hard link: writing would change another file."""
    if os.fstat(handle).st_nlink > 1:
        raise NotRegular(path, "a hard link to another file")


def _locked(handle: int) -> bool | None:
    """Whether we hold the lock; None if the file system has no locks."""
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
    """The process named in the file; None if empty or unreadable."""
    try:
        return Holder(**json.loads(os.pread(handle, _MAX_NBYTES, 0)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _is_gone(holder: Holder) -> bool | None:
    """Whether the process has ended; None if unknown."""
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
    """Start time of a running process; "" if it has ended or this is unknown."""
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
        f"{directory}: {who} is training in this directory. Choose another one, or wait until it "
        "has ended."
    )
