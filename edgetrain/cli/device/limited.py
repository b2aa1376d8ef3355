"""A command under a limit on address space (ulimit -v): one line if there is too little.

Without memory, libraries report missing files, print lines of their own, abort, exit, or wait for a
thread that never started. So the command runs in a child process whose library output is discarded;
if it fails, this process reports the reason.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable

from ...screen.streams import Stream
from ...units import format_bytes

# Address space of Python and its libraries, on x86-64: with less, libraries fail in various
# ways. Running a compiled Program needs neither onnx nor the compiler.
_RUNNING, _COMPILING = 280 * 2**20, 560 * 2**20
_COMPILERS = ("plan", "advise", "compile", "parity", "migrate", "demo")
_TRAINERS = ("train", "find-lr")  # they also compile if they get a model
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


def address_limit() -> int | None:
    """Bytes this process may map; None: no limit."""
    try:
        with open("/proc/self/limits") as file:  # saves importing a library
            soft = next(line.split()[3] for line in file if line.startswith("Max address space"))
        return None if soft == "unlimited" else int(soft)
    except (OSError, StopIteration, ValueError, IndexError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        return None if limit == resource.RLIM_INFINITY else limit


def no_memory(limit: int | None, needs: int = 0) -> str:
    """The error message.

    Args:
      limit: from `address_limit`.
      needs: bytes the command needs at least; 0 if unknown.
    """
    if limit is None:
        return "error: the system has no memory left. Free some, or lower limits."
    least = f", at least {format_bytes(needs)} are needed plus the arena" if needs else ""
    return (
        f"error: not enough memory: ulimit -v allows {format_bytes(limit)}{least}. Raise the limit."
    )


def needed(command: str, file: str) -> int:
    """Bytes of address space that a command needs to start.

    Args:
      file: the model or Program; "" if none.
    """
    if command in _COMPILERS or (command in _TRAINERS and file.endswith(".onnx")):
        return _COMPILING
    return _RUNNING if command in (*_TRAINERS, "eval") else 0


def supervised(command: Callable[[], int], failed: Callable[[], int]) -> int:
    """Run `command` in a child process; `failed` explains why if the child is killed.

    Returns:
      The exit status. The child exits by SystemExit.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread takes memory, needed or not
    sys.stdout.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_SIGNALS, signal.SIGCHLD})
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _mute_libraries()
        status = command()
        os.write(writer, b"!")
        sys.exit(status)
    os.close(writer)
    try:
        status = _wait_for(child)
        ended_itself = os.read(reader, 1)
    finally:
        os.close(reader)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if -status in (*_SIGNALS, signal.SIGKILL):  # not caused by a library
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status if ended_itself else failed()


def _mute_libraries() -> None:
    """Discard output to descriptor 2, but keep Python's stderr."""
    with contextlib.suppress(OSError):
        ours = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        ours_text = os.fdopen(ours, "w", buffering=1, errors="backslashreplace")
        sys.stderr = Stream(ours_text, lambda reason: None)  # type: ignore[assignment]


def _wait_for(child: int) -> int:
    """The child's exit status; signals are passed on to it."""
    while True:
        result, status = os.waitpid(child, os.WNOHANG)
        if result:
            return os.waitstatus_to_exitcode(status)
        info = signal.sigwaitinfo({*_SIGNALS, signal.SIGCHLD})
        if info.si_signo != signal.SIGCHLD and info.si_pid:  # a terminal signals the child too
            os.kill(child, info.si_signo)
