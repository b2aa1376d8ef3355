"""Runs a callable in a forked child and reports how it ended; all fuzzers here use this.

A crash, hang or huge allocation ends one child only, and counts as a fault of one case.
"""

import contextlib
import faulthandler
import json
import math
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgetrain.errors import EdgetrainError

CPU_SECONDS = 10.0
GROWN_NBYTES = 2**29
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
_SHOWN = 2000  # bytes of output, and characters of a message, that are kept


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
      how: "returned", "refused" (an EdgetrainError), "raised" (another exception, or a warning),
        "signal", "hung" (killed by the wall-clock limit) or "exited" (without a report).
      detail: "Type: message" of an exception, the name of a signal, else "".
      value: what the callable returned, through JSON.
      cpu_seconds: user and system time of the child.
      grown_nbytes: growth of peak resident memory since the fork.
      output: the end of its stdout and stderr.
    """

    how: str
    detail: str
    value: Any
    cpu_seconds: float
    grown_nbytes: int
    output: str


def run(
    call: Callable[[], Any], *, cpu_seconds: float = CPU_SECONDS, wall_seconds: float = 0.0
) -> Ended:
    """Run `call` in a forked child and wait until it ends.

    Args:
      call: takes no arguments, returns a JSON value.
      cpu_seconds: CPU limit; the child gets SIGXCPU one or two seconds later.
      wall_seconds: wall-clock limit, then the child is killed; 0: many times `cpu_seconds`, since
        tests share processors.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():  # workers of earlier tests may still be alive
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            os.close(reading)
            _child(call, writing, output.fileno(), cpu_seconds)
        os.close(writing)
        report, hung = _gather(reading, pid, wall_seconds or 30 + 12 * cpu_seconds)
        _, status, usage = os.wait4(pid, 0)
        said = _tail(output)
    how, detail, value = _outcome(report, status, hung)
    grown = max(0, usage.ru_maxrss * 1024 - int(report.get("start_nbytes", 2**62)))
    return Ended(how, detail, value, usage.ru_utime + usage.ru_stime, grown, said)


def fault(
    ended: Ended, *, cpu_seconds: float = CPU_SECONDS, grown_nbytes: int = GROWN_NBYTES
) -> str:
    """Return what is wrong with the way a child ended, in one line, or "".

    A child must return or be refused in one line, print neither "Traceback" nor "unexpected", and
    stay within its limits.
    """
    told = f"{ended.how} {ended.detail}".strip()
    if ended.how not in ("returned", "refused"):
        return f"{told}: {ended.output[-300:]}" if ended.output else told
    if "\n" in ended.detail:
        return f"{told!r}: more than one line"
    for word in ("Traceback", "unexpected "):
        if word in ended.output + ended.detail:
            return f"{told}: said {word.strip()!r}: {ended.output[-300:]}"
    if ended.cpu_seconds > cpu_seconds:
        return f"{told}: took {ended.cpu_seconds:.1f} s of CPU, at most {cpu_seconds:g} s"
    if ended.grown_nbytes > grown_nbytes:
        return f"{told}: grew by {ended.grown_nbytes:,} bytes, at most {grown_nbytes:,}"
    return ""


def _child(call: Callable[[], Any], writing: int, output: int, cpu_seconds: float) -> None:
    """Run `call` and exit. The first line of the report is written before anything can fail."""
    try:
        _put(writing, {"start_nbytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024})
        warnings.simplefilter("error")  # as in pytest: a warning counts as a fault
        faulthandler.disable()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limit = math.ceil(cpu_seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 2))
        _put(writing, _called(call))
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(0)


def _called(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"how": "returned", "detail": "", "value": call()}
    except EdgetrainError as error:
        return {"how": "refused", "detail": f"{type(error).__name__}: {error}"[:_SHOWN]}
    except BaseException as error:  # SystemExit too: the child must not return
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        return {"how": "raised", "detail": text[:_SHOWN]}


def _put(writing: int, part: dict[str, Any]) -> None:
    data = json.dumps(part).encode() + b"\n"
    while data:
        data = data[os.write(writing, data) :]


def _gather(reading: int, pid: int, wall_seconds: float) -> tuple[dict[str, Any], bool]:
    """Read the child's report until it ends; return it and whether the child had to be killed."""
    data, hung, end = b"", False, time.monotonic() + wall_seconds
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            os.kill(pid, signal.SIGKILL)
            hung = True
            break
        part = os.read(reading, 2**16)
        if not part:
            break
        data += part
    os.close(reading)
    report: dict[str, Any] = {}
    for line in data.splitlines():
        with contextlib.suppress(ValueError):  # an incomplete line
            report |= json.loads(line)
    return report, hung


def _outcome(report: dict[str, Any], status: int, hung: bool) -> tuple[str, str, Any]:
    if hung:
        return "hung", "", None
    if os.WIFSIGNALED(status):
        return "signal", signal.Signals(os.WTERMSIG(status)).name, None
    if "how" not in report:
        return "exited", f"status {os.waitstatus_to_exitcode(status)}", None
    return report["how"], report["detail"], report.get("value")


def _tail(output: Any) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _SHOWN))
    return output.read().decode("utf-8", "replace")
