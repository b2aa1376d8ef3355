"""Compile on all processors at once: other processes put objects into the cache.

Nothing here raises: an object that a process fails to make is made by whoever needs it.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ...units import processors
from . import disk, jit

Task = dict[str, Any]


class Workers:
    """Processes that compile tasks, first ones first; call `wait` for them.

    Code that tasks of a `group` share is compiled once per process. So a process prefers tasks of
    the group it is working on, then of a group that no process has begun, then any.
    """

    def __init__(self, tasks: Sequence[Task], count: int, made: Callable[[int], None]) -> None:
        self._left = list(enumerate(tasks))
        self._begun: set[str] = set()
        self._ended = [threading.Event() for _ in tasks]
        self._lock = threading.Lock()
        self._done = 0
        self._made = made
        self._processes: list[subprocess.Popen] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        with contextlib.suppress(RuntimeError):  # too many threads: fewer, or none
            for thread in self._threads:
                thread.start()

    def wait(self, number: int | None = None) -> None:
        """Wait until one task, or every task, is made or has failed."""
        try:
            for ended in self._ended if number is None else [self._ended[number]]:
                while not ended.wait(1.0) and any(map(threading.Thread.is_alive, self._threads)):
                    pass
        except BaseException:  # interrupted: nobody waits any more
            for process in self._processes:
                process.kill()
            raise

    def _next(self, current: str) -> tuple[int, Task] | None:
        """Number and task for a process whose last task was in the group `current`."""

        def later(item: tuple[int, Task]) -> tuple[bool, bool]:
            group = item[1].get("group", "")
            return group != current, group in self._begun

        with self._lock:
            if not self._left:
                return None
            chosen = min(self._left, key=later)
            self._left.remove(chosen)
            self._begun.add(chosen[1].get("group", ""))
            return chosen

    def _serve(self) -> None:
        with contextlib.suppress(OSError, ValueError), _started() as process:
            self._processes.append(process)
            assert process.stdin is not None and process.stdout is not None
            group = ""
            while (following := self._next(group)) is not None:
                number, task = following
                group = task.get("group", "")
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
                if not process.stdout.readline():
                    return  # it died; whoever needs the object makes it
                with self._lock:
                    self._done += 1
                    self._made(self._done)
                self._ended[number].set()


def _started() -> subprocess.Popen:
    root = str(Path(__file__).resolve().parents[3])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "edgetrain.kernels.cache.compile_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )


def started(
    tasks: Iterable[Task], most: int | None = None, made: Callable[[int], None] = lambda done: None
) -> Workers | None:
    """Processes that compile these tasks; None with only one processor, no cache or no compiler.

    Args:
      most: maximum number of processes; None uses all processors.
      made: called with the number of finished tasks.
    """
    wanted = list(tasks)
    count = min(len(wanted), processors(), most or len(wanted))
    able = sys.executable and processors() > 1 and jit.available()
    if not able or not count or disk.directory() is None:
        return None
    return Workers(wanted, count, made)
