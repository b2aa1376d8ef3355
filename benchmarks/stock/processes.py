"""A process for each measurement of a stock model, with a time limit.

Measurements that need torch are forked from a server that imports it once. The first step runs in a
fresh process without torch, so its CPU time is what a user waits for.
"""

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import marks

from .listed import Listed

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["benchmarks.stock.measure"])
_EXIT = 30.0  # seconds that a process has to end once it has sent its result


def measure(
    what: str, row: Listed, path: Path, kernels: Path | None, limit: float, key: str = ""
) -> dict[str, Any]:
    """Measure export, step, parity or torch; {"refused": why} if it fails or takes too long.

    Args:
      path: of the model's ONNX file.
      kernels: the cache of kernels; None: this user's.
      limit: seconds.
      key: of the plans measured before; the step is left out if they are the same.
    """
    if what == "step":
        return _first_step(row, path, kernels, limit, key)
    here, there = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_forked, args=(there, what, row.label, path, kernels))
    process.start()
    there.close()
    try:
        if not here.poll(limit):
            return {"refused": f"not done within {limit:g} s"}
        found = here.recv()
        process.join(_EXIT)  # a killed process leaves its semaphores behind
        return found
    except EOFError:
        process.join()
        return {"refused": _ended(process.exitcode)}
    finally:
        process.kill()
        process.join()


def _ended(status: int | None) -> str:
    if status == -signal.SIGKILL:
        return "killed by the system, as when memory runs out"
    return f"exit status {status}"


def _forked(to: Connection, what: str, label: str, path: Path, kernels: Path | None) -> None:
    if kernels is not None:
        os.environ["EDGETRAIN_CACHE"] = str(kernels)
    from . import measure as measurements

    to.send(measurements.result(what, label, path))


def _first_step(
    row: Listed, path: Path, kernels: Path | None, limit: float, key: str
) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.stock.first_step", row.label, str(path), key]
    environment = os.environ | {"EDGETRAIN_PROGRESS": "0"}
    if kernels is not None:
        environment["EDGETRAIN_CACHE"] = str(kernels)
    before = _seconds()
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, cwd=marks.ROOT, env=environment,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=limit)
        except BaseException as error:  # also ends its compiling subprocesses
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return {"refused": f"not done within {limit:g} s"}
            raise
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    if not lines:
        return {"refused": _ended(process.returncode)}
    found = json.loads(lines[-1])
    if "plan_cpu" in found:
        found["step_cpu"] = _seconds() - before - found["plan_cpu"] - found.pop("compared_cpu")
    return found


def _seconds() -> float:
    """CPU time of finished child processes and their children."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
