"""Runs tapes: they are proved once (runtime/tapes.py), then workers enter without Python.

Kernels come from an installed library, or the disk cache where they were compiled before.
"""

import ctypes
import os
import platform
import sys
import weakref
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..errors import ProgramError, RunError, UsageError
from ..kernels import registry
from ..kernels.decode import Bound
from ..kernels.load import addresses
from ..kernels.tape import ARRIVALS, BARRIER_WORDS, GENERATION, OPERANDS, PATIENCE, WAIT, WAKE
from ..kernels.targets import in_pairs
from ..program import Program
from ..units.options import typed
from .arena import Arena
from .mapping import Placed
from .signals import Deferral
from .tapes import check_program

_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
_TEAM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
# Number of the system call futex, by processor.
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_LONGEST_SLEEP = 2_000_000  # nanoseconds
# Turns of loops: a tape of fewer, about two milliseconds, is over before a second thread has come.
ALONE = 50_000_000


class _Tape(NamedTuple):
    """A tape, the kernels that it numbers, operands of the interpreter; none may move."""

    words: np.ndarray
    table: np.ndarray
    operands: np.ndarray


class Executor:
    """Checked tapes over one arena, and the workers that run them.

    Args:
      threads: workers; at most the Program's.
    Attributes:
      signals: held back while machine code runs.
    """

    def __init__(self, program: Program, arena: Arena, threads: int | None = None) -> None:
        self.threads = program.threads if threads is None else typed("threads", threads, (int,))
        if not 1 <= self.threads <= program.threads:
            raise ProgramError(
                f"threads {self.threads}: the Program has workspaces for 1 to {program.threads}. "
                "Give fewer, or compile with as many threads."
            )
        kernels = check_program(program, arena.nbytes)
        placed = Placed(program, arena.address, kernels) if program.mapped else None
        self._base, self._process, self.signals = arena.address, os.getpid(), Deferral()
        self._pairs = in_pairs(program.recipe)
        self._table, entry = self._load(kernels)
        self._run = _ENTRY(entry)
        self._barrier = self._barrier_block()
        self._tapes: dict[str, _Tape] = {}
        for name, words in program.tapes.items():
            if placed is None:
                self._keep(name, words, self._table, self._base)
            else:  # its words are addresses
                self._keep(name, placed.words(words), self._table, 0)
        self._placed = placed
        few = [name for name in program.tapes if _turns(program, name) < ALONE]
        self._workers = _Workers(self._run, self._barrier, self.threads)
        self._workers.alone.update(map(self.operands, few))

    def _load(self, kernels: Sequence[Bound]) -> tuple[np.ndarray, int]:
        """The table of the kernels' addresses, and the interpreter's address."""
        if self._pairs:
            from ..kernels.paired import paired

            kernels = [(paired(kernel), storages) for kernel, storages in kernels]
        interpreter: Bound = registry.variants("run_tape")[0], {}
        *table, entry = addresses([*kernels, interpreter])
        return np.array(table, np.int64), entry

    def _barrier_block(self) -> np.ndarray:
        """Where workers meet; on Linux they sleep there, elsewhere they yield."""
        system, block = ctypes.CDLL(None), np.zeros(BARRIER_WORDS, np.int64)

        def address(function: Any) -> int:
            return ctypes.cast(function, ctypes.c_void_p).value or 0

        number = _FUTEX.get(platform.machine()) if sys.platform == "linux" else None
        if number is None or ctypes.sizeof(ctypes.c_void_p) != 8 or self.threads == 1:
            block[WAIT] = address(system.sched_yield)
            return block
        block[[WAIT, WAKE]] = self.entries("drive_wait", "drive_wake")
        operands = block.ctypes.data, address(system.syscall), number
        block[OPERANDS : OPERANDS + len(operands)] = operands
        block[PATIENCE + 1] = _LONGEST_SLEEP
        return block

    def entries(self, *names: str) -> list[int]:
        """Addresses of kernels without storages."""
        return self._load([(registry.variants(name)[0], {}) for name in names])[0].tolist()

    def _keep(self, name: str, words: np.ndarray, table: np.ndarray, base: int) -> None:
        words = np.ascontiguousarray(words, np.int64)
        start = words.ctypes.data
        operands = [base, start, start + words.nbytes, table.ctypes.data,
                    self._barrier.ctypes.data]  # fmt: skip
        self._tapes[name] = _Tape(words, table, np.array(operands, np.int64))

    @property
    def entry(self) -> int:
        """Address of the interpreter."""
        return ctypes.cast(self._run, ctypes.c_void_p).value or 0

    @property
    def team(self) -> int:
        """Address of `void run(void *user, void *tape)`, which runs a tape with all workers; 0
        where the caller's thread is the only one."""
        return self._workers.address

    def operands(self, tape: str) -> int:
        """Address of the interpreter's operands for a tape; 0 where it has no instruction."""
        found = self._tapes[tape]
        return found.operands.ctypes.data if len(found.words) else 0

    def add(self, tape: str, calls: Sequence[tuple[str, Mapping[str, int]]]) -> int:
        """Another tape, of kernels without storages and the words of their operands.

        Returns:
          As `operands`.
        """
        kernels, words = [registry.variants(name)[-1] for name, _ in calls], list[int]()
        for number, (kernel, (_, operands)) in enumerate(zip(kernels, calls, strict=True)):
            own = [operands[operand.name] for operand in kernel.spec.operands]
            words += [number, len(own), *own]
        table, _ = self._load([(kernel, {}) for kernel in kernels])
        self._keep(tape, np.array(words, np.int64), table, self._base)
        self._workers.alone.add(self.operands(tape))
        return self.operands(tape)

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

    def check_files(self) -> None:
        """Raises RunError: the file of mapped weights was cut short or written over."""
        if self._placed is not None:
            self._placed.check()

    def run(self, tape: str) -> None:
        """Run a tape from its first instruction to its last; returns when every worker is done.

        Raises:
          UsageError: the session is closed, or belongs to another process.
          RunError: as `check_files`.
        """
        self.check_process()
        self.check_files()
        operands = self.operands(tape)
        if operands:
            with self.signals:
                self._workers(operands)

    def call(self, entry: int, *operands: int) -> None:
        """Call a kernel that takes addresses and integers, on this thread.

        Raises:
          UsageError: the session is closed, or belongs to another process.
          BaseException: what was raised while the workers ran.
        """
        self.check_process()
        self._workers.check_open()
        words = np.array(operands, np.int64)
        with self.signals:
            _ENTRY(entry)(0, words.ctypes.data, 0, 1)
        self._workers.reraise()

    def close(self) -> None:
        """End the workers; in a forked child there are none."""
        if os.getpid() == self._process:
            self._workers.close()


def _turns(program: Program, tape: str) -> int:
    """Turns of the innermost loops of a tape's kernels."""
    return sum(program.work.get(tape, {}).values())


def _held() -> LockType:
    lock = allocate_lock()
    lock.acquire()
    return lock


def _called(workers: "weakref.ref[_Workers]", user: int | None, tape: int) -> None:
    found = workers()
    if found is not None:
        try:
            found(tape)
        except BaseException as error:
            found.keep(error)


class _Workers:
    """Threads that enter the interpreter together with the caller.

    Attributes:
      alone: addresses of the operands of tapes that the caller runs by itself.
      address: of a C function that does what a call does; 0 where the caller is alone.
    """

    def __init__(self, run, barrier: np.ndarray, count: int) -> None:
        self._run, self._barrier, self._count, self._closed = run, barrier, count, False
        self.alone: set[int] = set()
        self._raised: BaseException | None = None
        self._callback = _TEAM(partial(_called, weakref.ref(self)))
        self.address = 0
        if count > 1:
            self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        # Of each worker but the caller: held while it waits for work, held while it is at work.
        self._go = [_held() for _ in range(1, count)]
        self._done = [_held() for _ in range(1, count)]
        self._args: int | None = 0
        try:
            for index in range(1, count):
                start_new_thread(self._serve, (index, self._go[index - 1], self._done[index - 1]))
        except RuntimeError as error:
            raise RunError(
                f"{count} threads: the system did not give them ({error}). Ask for 1 thread, or "
                "raise the limits on memory (ulimit -v) and processes (ulimit -u)."
            ) from error

    def _serve(self, index: int, go: LockType, done: LockType) -> None:
        while True:
            go.acquire()
            args = self._args
            if args is not None:
                self._run(0, args, index, self._count)
            done.release()
            if args is None:
                return

    def check_open(self) -> None:
        """Raises UsageError: it is closed."""
        if self._closed:
            raise UsageError("this session is closed; open another one.")

    def __call__(self, args: int) -> None:
        self.check_open()
        if args in self.alone:
            self._run(0, args, 0, 1)
            return
        self._barrier[[ARRIVALS, GENERATION]] = 0
        self._args = args
        for go in self._go:
            go.release()
        self._run(0, args, 0, self._count)
        for done in self._done:
            done.acquire()

    def keep(self, error: BaseException) -> None:
        """Have `reraise` raise it: nothing may be raised through machine code."""
        self._raised = error

    def reraise(self) -> None:
        """Raise what was kept."""
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def close(self) -> None:
        self._closed = True
        self._args = None
        for go in self._go:
            go.release()
        for done in self._done:
            done.acquire()
        self._go, self._done = [], []
