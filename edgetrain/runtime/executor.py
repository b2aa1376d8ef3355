"""Runs tapes: every operand is checked against the arena once, then workers enter without Python.

The objects of the kernels come from the disk cache where they were compiled before; the extents
that tapes are checked with come from this build's declarations, never from the file.
"""

import ctypes
import os
import threading
from collections.abc import Sequence
from functools import partial

import numpy as np

from ..compiler.program import Program, Slot
from ..errors import ProgramError, RunError, UnsupportedOpError, UsageError
from ..kernels import jit, registry
from ..kernels.spec import ALIGN, NBYTES
from ..kernels.tape import BARRIER_WORDS
from ..needs import typed
from .arena import Arena

# Integers of kernels that are neither sizes nor strides; all others are at most the arena's bits,
# so that a damaged one cannot make a loop endless.
_NOT_COUNTS = ("key", "ignore", "padding")
# What may write patterns, in the order of a rewiring; all but csr_share run once for each layer.
REWIRING = ("csr_drop", "csr_close", "csr_share", "csr_grow")
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


def bound_kernels(program: Program) -> list[tuple[registry.Kernel, dict[str, str]]]:
    """This build's kernels for a Program's table, with their storages.

    Raises:
      ProgramError: a kernel that this build does not have.
    """
    out = []
    for name, variant, storages in program.kernels:
        try:
            found = [k for k in registry.variants(name) if k.variant == variant]
        except UnsupportedOpError:
            found = []
        if not found or len(found[0].spec.variables) != len(storages) or name == "run_tape":
            raise ProgramError(
                f"kernel {name}.{variant} of {storages}: this build does not have it. Compile the "
                "model with this version of edgetrain."
            )
        out.append((found[0], dict(zip(found[0].spec.variables, storages, strict=True))))
    return out


def check_tape(
    words: np.ndarray,
    kernels: Sequence,
    arena_nbytes: int,
    threads: int,
    guarded: Sequence[tuple[int, int]] = (),
) -> None:
    """Prove that a tape touches nothing outside the arena.

    Args:
      guarded: (first, last + 1) bytes of patterns, which only REWIRING kernels may write.
    Raises:
      ProgramError: names the instruction and what is wrong with it.
    """
    code, at, lanes = words.tolist(), 0, jit.host().lanes
    while at < len(code):
        index, count = code[at], code[at + 1] if at + 1 < len(code) else -1
        if not 0 <= index < len(kernels) or count != kernels[index][0].spec.words:
            raise ProgramError(f"tape word {at}: not an instruction. Compile the model again.")
        if at + 2 + count > len(code):
            raise ProgramError(f"tape word {at}: cut short. Compile the model again.")
        kernel, storages = kernels[index]
        written = _check_instruction(
            kernel, storages, code[at + 2 : at + 2 + count], arena_nbytes, threads, lanes, at
        )
        for name, start, stop in written if kernel.name not in REWIRING else ():
            if any(start < last and first < stop for first, last in guarded):
                raise ProgramError(
                    f"tape word {at}: operand {name} of {kernel.name} lies on the positions of "
                    "sparse weights. Compile the model again."
                )
        at += 2 + count


def _check_instruction(
    kernel, storages, words, arena_nbytes, threads, lanes, at
) -> list[tuple[str, int, int]]:
    """The (name, first byte, last byte + 1) of what an instruction writes."""
    values, scratch, k, most = {}, (0, 0), 0, 8 * arena_nbytes
    for operand in kernel.spec.operands:
        if operand.mode == "t":
            scratch, k = (words[k], words[k + 1]), k + 2
            continue
        values[operand.name] = words[k]
        if operand.mode == "i" and operand.name not in _NOT_COUNTS and abs(words[k]) > most:
            raise ProgramError(
                f"tape word {at}: {operand.name} of {kernel.name} is {words[k]}; an arena of "
                f"{arena_nbytes} bytes has nothing to count so far. Compile the model again."
            )
        if operand.is_reference and words[k] < 0 and not operand.optional:
            raise ProgramError(f"tape word {at}: {kernel.name} lacks operand {operand.name}.")
        k += 1
    extents = kernel.spec.extents(values, storages, threads, lanes)
    storage = {o.name: storages.get(o.storage, o.storage) for o in kernel.spec.operands}
    # An operand may be a part of a value: only its elements lie at multiples of their size.
    regions = [
        (name, values[name], nbytes, NBYTES[storage[name]]) for name, nbytes in extents.items()
    ]
    need = kernel.spec.scratch_nbytes(values, threads, lanes)
    if need:
        if scratch[1] < need:
            raise ProgramError(
                f"tape word {at}: {kernel.name} has {scratch[1]} bytes of scratch a thread, "
                f"needs {need}. Compile the model for this processor."
            )
        regions.append(("scratch", scratch[0], scratch[1] * threads, ALIGN))
    for name, offset, nbytes, align in regions:
        if offset < 0 or offset % align or nbytes < 0 or offset + nbytes > arena_nbytes:
            raise ProgramError(
                f"tape word {at}: operand {name} of {kernel.name} takes bytes {offset} to "
                f"{offset + nbytes} of an arena of {arena_nbytes}. Compile the model again."
            )
    kept = {operand.name for operand in kernel.spec.operands if operand.mode == "r"}
    return [
        (name, offset, offset + nbytes) for name, offset, nbytes, _ in regions if name not in kept
    ]


def _bytes_of(slot: Slot) -> tuple[int, int]:
    return slot.offset, slot.offset + slot.size * NBYTES[slot.dtype]


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
        kernels = bound_kernels(program)
        guarded = [_bytes_of(slot) for slot in program.persistent if slot.role == "index"]
        staged = [slot for slots in program.inputs.values() for slot in slots]
        for start, stop in map(_bytes_of, (*staged, *program.targets.values())):
            if any(start < last and first < stop for first, last in guarded):
                raise ProgramError(
                    f"{program.model_name}: inputs lie on the positions of sparse weights. Compile "
                    "the model again."
                )
        for words in program.tapes.values():
            check_tape(words, kernels, arena.nbytes, program.threads, guarded)
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


def _load(kernels: Sequence) -> tuple[np.ndarray, int]:
    """The table of the kernels' addresses, and the interpreter's address."""
    target = jit.host()
    interpreter = registry.variants("run_tape")[0]
    wanted = [*kernels, (interpreter, {})]
    addresses = jit.load({k.symbol(s): partial(k.object, s, target) for k, s in wanted})
    table = [addresses[kernel.symbol(storages)] for kernel, storages in kernels]
    return np.array(table, np.int64), addresses[interpreter.symbol({})]


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
