"""Runs tapes: they are proved once (runtime/tapes.py), then workers enter without Python.

Kernels come from an installed library, or the disk cache where they were compiled before.
"""

import ctypes
import os
import threading
from collections.abc import Sequence

import numpy as np

from ..errors import ProgramError, RunError, UsageError
from ..kernels import registry
from ..kernels.decode import Bound
from ..kernels.load import addresses
from ..kernels.tape import BARRIER_WORDS
from ..program import Program
from ..units.options import typed
from .arena import Arena
from .tapes import check_program

_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


class Executor:
    """Checked tapes over one arena, and the workers that run them.

    Args:
      threads: workers; at most the Program's.
    """

    def __init__(self, program: Program, arena: Arena, threads: int | None = None) -> None:
        self.threads = program.threads if threads is None else typed("threads", threads, (int,))
        if not 1 <= self.threads <= program.threads:
            raise ProgramError(
                f"threads {self.threads}: the Program has workspaces for 1 to {program.threads}."
            )
        kernels = check_program(program, arena.nbytes)
        self._base, self._process = arena.address, os.getpid()
        self._table, entry = _load(kernels)
        self._run = _ENTRY(entry)
        self._barrier = np.zeros(BARRIER_WORDS, np.int64)
        self._barrier[16] = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0
        self._tapes = {name: np.ascontiguousarray(w) for name, w in program.tapes.items()}
        self._args = {name: self._arguments(words) for name, words in self._tapes.items()}
        self._addresses = {name: args.ctypes.data for name, args in self._args.items()}
        self._workers = _Workers(self._run, self.threads)

    def _arguments(self, words: np.ndarray) -> np.ndarray:
        start = words.ctypes.data
        return np.array(
            [self._base, start, start + words.nbytes, self._table.ctypes.data,
             self._barrier.ctypes.data],
            np.int64,
        )  # fmt: skip

    def check_process(self) -> None:
        """Refuse to work in a fork of the process that made this.

        Raises:
          UsageError: the workers are not there, and the arena's bytes are shared with the parent.
        """
        if os.getpid() != self._process:
            raise UsageError(
                f"process {os.getpid()} was forked from process {self._process}, where this "
                "session was opened: its worker threads are not here. Open it in this process "
                "(load the Program here), or start processes with the 'spawn' method."
            )

    def run(self, tape: str) -> None:
        """Run a tape from its first instruction to its last; returns when every worker is done.

        Raises:
          UsageError: the session is closed, or belongs to another process.
        """
        self.check_process()
        if len(self._tapes[tape]):
            self._barrier[:2] = 0
            self._barrier[8] = 0
            self._workers(self._addresses[tape])

    def close(self) -> None:
        """End the workers; in a forked child there are none."""
        if os.getpid() == self._process:
            self._workers.close()


def _load(kernels: Sequence[Bound]) -> tuple[np.ndarray, int]:
    """The table of the kernels' addresses, and the interpreter's address."""
    interpreter: Bound = registry.variants("run_tape")[0], {}
    *table, entry = addresses([*kernels, interpreter])
    return np.array(table, np.int64), entry


class _Workers:
    """Threads that enter the interpreter together with the caller."""

    def __init__(self, run, count: int) -> None:
        self._run, self._count, self._closed = run, count, False
        self._go = [threading.Semaphore(0) for _ in range(1, count)]
        self._done = threading.Semaphore(0)
        self._args: int | None = 0
        self._threads = [
            threading.Thread(target=self._serve, args=(k,), daemon=True) for k in range(1, count)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            raise RunError(
                f"{count} threads: the system did not give them ({error}). Ask for 1 thread, or "
                "raise the limits on memory (ulimit -v) and processes (ulimit -u)."
            ) from error

    def _serve(self, index: int) -> None:
        while True:
            self._go[index - 1].acquire()
            if self._args is None:
                return
            self._run(0, self._args, index, self._count)
            self._done.release()

    def __call__(self, args: int) -> None:
        if self._closed:
            raise UsageError("this session is closed; open another one.")
        self._args = args
        for semaphore in self._go:
            semaphore.release()
        self._run(0, args, 0, self._count)
        for _ in self._go:
            self._done.acquire()

    def close(self) -> None:
        self._closed = True
        self._args = None
        for semaphore in self._go:
            semaphore.release()
        for thread in self._threads:
            thread.join()
        self._go, self._threads = [], []
