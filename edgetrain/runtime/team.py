"""The threads that run a tape together: the caller and waiting workers."""

import ctypes
import os
import platform
import sys
import weakref
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..errors import RunError, UsageError
from ..kernels.step_loop.layout import THREADS
from ..kernels.tapes import tape
from ..units import processors

ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
# Number of the system call futex, by processor.
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_LONGEST_SLEEP = 2_000_000  # nanoseconds
_LINE = 8  # words of a cache line


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _aligned(words: int) -> np.ndarray:
    raw = np.zeros(words + _LINE, np.int64)
    return raw[-raw.ctypes.data // 8 % _LINE :][:words]


def _nothing() -> None:
    """Stands in if there are no workers."""


def _dismiss(part: Callable[[], None], hired: Sequence[LockType], process: int) -> None:
    """Stop the workers and wait for them; a forked child has none."""
    if os.getpid() == process and hired:
        part()
        for there in hired:
            there.acquire()


class Team:
    """Threads that run the interpreter together with the caller.

    Args:
      entry: address of the interpreter.
      count: number of threads.
      find: returns addresses of kernels without storages, by name.
    Attributes:
      barrier: the block used for synchronisation (kernels/tapes/tape.py).
      run_tape: address of a function with a kernel's signature that runs a tape's operands.
      run: address of `void run(void *user, void *tape)` for several threads; 0: use `run_tape`.
      prompt: whether spinning workers start at once; only they run short tapes.
    """

    prompt = False

    def __init__(self, entry: int, count: int, find: Callable[..., Sequence[int]]) -> None:
        self.count, self.run_tape, self.run = count, entry, 0
        self._closed = False
        self.barrier = _aligned(tape.TEAM_WORDS)
        self.barrier[[tape.WAIT, tape.YIELD]] = _address(ctypes.CDLL(None).sched_yield)
        if count <= processors():
            self.barrier[[tape.LIMIT, tape.MOST]] = tape.MOST_SPIN
        # One per worker, held while it runs.
        self._there = [_held() for _ in range(1, count)]
        self._begin(entry, find)
        self._enter = ENTRY(self.run_tape)
        hired = list[LockType]()
        self._leave = weakref.finalize(self, _dismiss, self._parting(), hired, os.getpid())
        self._leave.atexit = False  # the exiting process ends the workers
        try:
            for index in range(1, count):
                start_new_thread(self._worker(index), ())
                hired.append(self._there[index - 1])
        except RuntimeError as error:
            raise RunError(
                f"threads {count}: the system refused them ({error}). Use 1 thread, or raise the "
                "limits on memory (ulimit -v) and processes (ulimit -u)."
            ) from error

    def _begin(self, entry: int, find: Callable[..., Sequence[int]]) -> None:
        """Set up the state that workers need."""

    def _worker(self, index: int) -> Callable[[], None]:
        """The function run by thread `index`."""
        raise NotImplementedError

    def check_open(self) -> None:
        """Raise UsageError if the team is closed."""
        if self._closed:
            raise UsageError("session: it is closed. Open another one.")

    def __call__(self, operands: int) -> None:
        """Run a tape with the operands at this address."""
        self.check_open()
        self._enter(0, operands, 0, 1)

    def reraise(self) -> None:
        """Raise an exception from a tape started by machine code."""

    def close(self) -> None:
        """Stop the workers, as when a team is garbage-collected."""
        self._closed = True
        self._leave()

    def _parting(self) -> Callable[[], None]:
        """A function that stops the workers, without a reference to the team."""
        return _nothing


_ASLEEP = "drive_wait", "drive_wake", "drive_lead", "drive_serve", "drive_part"


class Sleepers(Team):
    """Workers that stay in machine code, spinning and then sleeping; 64-bit Linux."""

    prompt = True

    def _begin(self, entry: int, find: Callable[..., Sequence[int]]) -> None:
        block, system = self.barrier, ctypes.CDLL(None)
        block[tape.WAIT], block[tape.WAKE], self.run_tape, self._serve, self._part = find(*_ASLEEP)
        called = block.ctypes.data, _address(system.syscall), _FUTEX[platform.machine()]
        block[tape.OPERANDS : tape.OPERANDS + len(called)] = called
        block[tape.PATIENCE + 1] = _LONGEST_SLEEP
        block[tape.ENTRY], block[tape.CLOCK] = entry, _address(system.clock_gettime)
        self._operands = np.array([block.ctypes.data], np.int64)

    def _worker(self, index: int) -> Callable[[], None]:
        serve, there = ENTRY(self._serve), self._there[index - 1]
        return partial(_serve, serve, self.barrier, self._operands, index, self.count, there)

    def _parting(self) -> Callable[[], None]:
        return partial(_part, ENTRY(self._part), self.barrier, self._operands)


def _serve(
    enter: Any, barrier: np.ndarray, operands: np.ndarray, index: int, count: int, there: LockType
) -> None:
    """A worker: keeps its block alive, but not the team, which may be garbage-collected."""
    enter(0, operands.ctypes.data, index, count)
    there.release()


def _part(part: Any, barrier: np.ndarray, operands: np.ndarray) -> None:
    """Stop the workers of this block."""
    part(0, operands.ctypes.data, 0, 1)


class Relay(Team):
    """Workers that wait on Python locks between tapes, and yield at barriers."""

    def _begin(self, entry: int, find: Callable[..., Sequence[int]]) -> None:
        self._interpret = ENTRY(entry)
        self._raised: BaseException | None = None
        self._callback = _CALLBACK(partial(_called, weakref.ref(self)))
        self.run = _address(self._callback)
        # Two per worker: held while it waits for work, held while it works.
        self._go = [_held() for _ in range(1, self.count)]
        self._done = [_held() for _ in range(1, self.count)]
        self._given: list[int | None] = [0]

    def _worker(self, index: int) -> Callable[[], None]:
        locks = self._go[index - 1], self._done[index - 1], self._there[index - 1]
        return partial(_relay, self._interpret, self._given, index, self.count, *locks)

    def __call__(self, operands: int) -> None:
        self.check_open()
        if ctypes.c_int64.from_address(operands + 8 * THREADS).value == 1:
            self._interpret(0, operands, 0, 1)
            return
        self._given[0] = operands
        for go in self._go:
            go.release()
        self._interpret(0, operands, 0, self.count)
        for done in self._done:
            done.acquire()

    def keep(self, error: BaseException) -> None:
        """Store an exception for `reraise`: it must not pass through machine code."""
        self._raised = error

    def reraise(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _parting(self) -> Callable[[], None]:
        return partial(_call_off, self._given, self._go)


def _relay(
    enter: Any,
    given: list[int | None],
    index: int,
    count: int,
    go: LockType,
    done: LockType,
    there: LockType,
) -> None:
    """A worker without a reference to the team; it ends when it gets None."""
    while True:
        go.acquire()
        operands = given[0]
        if operands is None:
            there.release()
            return
        enter(0, operands, index, count)
        done.release()


def _call_off(given: list[int | None], waiting: Sequence[LockType]) -> None:
    given[0] = None
    for go in waiting:
        go.release()


def _called(team: "weakref.ref[Relay]", user: int | None, operands: int) -> None:
    result = team()
    if result is not None:
        try:
            result(operands)
        except BaseException as error:
            result.keep(error)


def _held() -> LockType:
    lock = allocate_lock()
    lock.acquire()
    return lock


def kernels_of(count: int) -> tuple[str, ...]:
    """Names of the kernels needed by a session's team with this many threads."""
    return _ASLEEP if _kind_of(count) is Sleepers else ()


def _kind_of(count: int) -> type[Team]:
    sleeps = sys.platform == "linux" and platform.machine() in _FUTEX
    sleeps = sleeps and ctypes.sizeof(ctypes.c_void_p) == 8
    return Team if count == 1 else Sleepers if sleeps else Relay


def team(entry: int, count: int, find: Callable[..., Sequence[int]]) -> Team:
    """The threads of a session; arguments as for `Team`.

    Raises:
      RunError: the system refuses more threads.
    """
    return _kind_of(count)(entry, count, find)
