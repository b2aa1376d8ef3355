"""Runs commands in processes of their own, under real limits."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Runs the command and prints its peak address space as the last line of stderr.
_MEASURED = """
import sys
from edgetrain.cli import main
status = main(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmPeak"))
print(peak.split()[1], file=sys.stderr)
sys.exit(status)
"""


def command(*argv: object, measured: bool = False) -> list[str]:
    """`edgetrain argv...` as a command for a new process."""
    start = ["-c", _MEASURED] if measured else ["-m", "edgetrain.cli"]
    return [sys.executable, *start, *map(str, argv)]


def run(
    argv: Sequence[str],
    before: Callable[[], None] | None = None,
    *,
    seconds: float = 300,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run to the end; `before` is called in the new process and can set limits on it."""
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=seconds, preexec_fn=before, cwd=ROOT,
        env={**os.environ, **(env or {})},
    )  # fmt: skip


def succeeded(ended: subprocess.CompletedProcess[str]) -> str:
    """Return stdout; fail with all output if the exit status is not 0."""
    assert ended.returncode == 0, (ended.returncode, ended.stdout[-2000:], ended.stderr[-2000:])
    return ended.stdout


def said_in_one_line(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of stderr; fail if there is a traceback anywhere."""
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stderr.strip().splitlines()[-1]


def address_space(nbytes: int) -> Callable[[], None]:
    """A limit on the address space of the process."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))


def file_size(nbytes: int) -> Callable[[], None]:
    """A limit on file sizes; with the signal ignored, writes fail as on a full disk."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))

    return limit


def one_core() -> None:
    """Restrict the process to one of its cores."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
