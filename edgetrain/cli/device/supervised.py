"""A command in a child process whose failure is explained, for systems with little memory.

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

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


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
