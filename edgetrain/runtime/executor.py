"""Runs tapes: they are checked once (runtime/loading/tapes.py), then workers run without Python.

Kernels come from an installed library or the disk cache.
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import ProgramError, UsageError
from ..kernels import registry
from ..kernels.cache.addresses import addresses
from ..kernels.tapes.decode import Bound, decode
from ..kernels.tapes.tape import MEMO_WORDS, TIMES
from ..kernels.targets import rewrites
from ..program import Program
from ..units.options import typed
from .arena import Arena
from .loading.mapping import Placed
from .loading.tapes import check_program
from .team import ENTRY, Team, kernels_of, team
from .training.signals import Deferral


class _Tape(NamedTuple):
    """A tape, its kernel table and the interpreter's operands; none may move in memory."""

    words: np.ndarray
    table: np.ndarray
    operands: np.ndarray


# Kernels that a session requests after loading its tapes.
DRIVE = "drive_train", "drive_evaluate", "rate_constant"


class Executor:
    """Checked tapes of one arena, and the workers that run them.

    Args:
      threads: workers; at most the Program's.
      beside: executor of another tape set in the same arena; its workers are shared.
    Attributes:
      team: the workers.
      memo: times of short tapes on one and on all threads (kernels/step_loop/team.py).
      signals: deferred while machine code runs.
    """

    def __init__(
        self,
        program: Program,
        arena: Arena,
        threads: int | None = None,
        beside: "Executor | None" = None,
    ) -> None:
        self.threads = program.threads if threads is None else typed("threads", threads, (int,))
        if not 1 <= self.threads <= program.threads:
            raise ProgramError(
                f"threads {self.threads}: the Program was compiled for 1 to {program.threads}. Use "
                f"fewer, or compile with threads={self.threads}."
            )
        assert program.arena_nbytes <= arena.nbytes
        self._kernels = kernels = check_program(program, program.arena_nbytes)
        placed = Placed(program, arena.address, kernels) if program.mapped else None
        self._base, self._process = arena.address, os.getpid()
        self._rewrites = rewrites(program.recipe)
        step_loop = () if beside else (*kernels_of(self.threads), *DRIVE)
        self._table, entry = self._load(kernels, step_loop)
        self.signals: Deferral = beside.signals if beside else Deferral()
        self.team: Team = beside.team if beside else team(entry, self.threads, self.entries)
        self._tapes: dict[str, _Tape] = {}
        self.memo = np.zeros(MEMO_WORDS + TIMES * len(program.tapes), np.int64)
        self.memo[MEMO_WORDS - 1] = len(program.tapes)
        for name, words in program.tapes.items():
            patient = program.threads_of(name) > 1
            threads = min(self.threads, program.threads_of(name, self.team.prompt))
            if placed is None:
                self._keep(name, words, self._table, self._base, threads, patient)
            else:  # its words are addresses
                self._keep(name, placed.addressed(words), self._table, 0, threads, patient)
        self._placed = placed

    def _load(self, kernels: Sequence[Bound], soon: Sequence[str] = ()) -> tuple[np.ndarray, int]:
        """The table of kernel addresses, and the interpreter's address.

        Args:
          soon: kernels without storages that will be requested next.
        """
        after: list[Bound] = [(registry.variants(name)[0], {}) for name in soon]
        if self._rewrites:
            from ..kernels.emission.rewritten import rewritten

            kernels = [
                (rewritten(kernel, self._rewrites), storages) for kernel, storages in kernels
            ]
            after = []
        interpreter: Bound = registry.variants("run_tape")[0], {}
        *table, entry = addresses([*kernels, interpreter], after)
        return np.array(table, np.int64), entry

    def entries(self, *names: str) -> list[int]:
        """Addresses of kernels without storages."""
        return self._load([(registry.variants(name)[0], {}) for name in names])[0].tolist()

    def _keep(
        self,
        name: str,
        words: np.ndarray,
        table: np.ndarray,
        base: int,
        threads: int = 1,
        patient: bool = False,
    ) -> None:
        words = np.ascontiguousarray(words, np.int64)
        start, barrier = words.ctypes.data, self.team.barrier.ctypes.data
        end = start + words.nbytes
        operands = [base, start, end, table.ctypes.data, barrier, threads, int(patient)]
        operands += [self.memo.ctypes.data, len(self._tapes)]
        self._tapes[name] = _Tape(words, table, np.array(operands, np.int64))

    def operands(self, tape: str) -> int:
        """Address of the interpreter's operands for a tape; 0 if it is empty."""
        result = self._tapes[tape]
        return result.operands.ctypes.data if len(result.words) else 0

    def add(self, tape: str, calls: Sequence[tuple[str, Mapping[str, int]]]) -> int:
        """Add a single-threaded tape of kernels without storages and the words of their operands.

        Returns:
          Like `operands`.
        """
        kernels, words = [registry.variants(name)[-1] for name, _ in calls], list[int]()
        for number, (kernel, (_, operands)) in enumerate(zip(kernels, calls, strict=True)):
            own = [operands[operand.name] for operand in kernel.spec.operands]
            words += [number, len(own), *own]
        table, _ = self._load([(kernel, {}) for kernel in kernels])
        self._keep(tape, np.array(words, np.int64), table, self._base)
        return self.operands(tape)

    def put(self, tape: str, kernel: str, operand: str, value: float) -> None:
        """Set a float32 operand in all instructions of a kernel."""
        result = self._tapes[tape]
        words, bits = result.words.copy(), int(np.float32(value).view(np.uint32))
        for instruction in decode(words.tolist(), self._kernels):
            if instruction.kernel.name == kernel:
                place = [*instruction.values].index(operand)
                assert instruction.scratch is None
                words[instruction.offset + 2 + place] = bits
        start = words.ctypes.data
        result.operands[1:3] = start, start + words.nbytes
        self._tapes[tape] = result._replace(words=words)

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that created this."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Refuse to work in a forked process.

        Raises:
          UsageError: there are no workers here, and changes would not reach the parent.
        """
        if self.is_forked:
            raise UsageError(
                f"process {os.getpid()} was forked from process {self._process}, which opened "
                "this session: its worker threads do not exist here. Open the session in this "
                "process, or start processes with the 'spawn' method."
            )

    def check_files(self) -> None:
        """Raise RunError if the file of mapped weights was truncated or overwritten."""
        if self._placed is not None:
            self._placed.check()

    def run(self, tape: str) -> None:
        """Run a tape; returns when all workers are done.

        Raises:
          UsageError: the session is closed, or belongs to another process.
          RunError: as for `check_files`.
        """
        self.check_process()
        self.check_files()
        operands = self.operands(tape)
        if operands:
            with self.signals:
                self.team(operands)

    def call(self, entry: int, *operands: int) -> None:
        """Call a kernel with addresses and integers, on this thread.

        Raises:
          UsageError: the session is closed, or belongs to another process.
          BaseException: an exception raised while the workers ran.
        """
        self.check_process()
        self.team.check_open()
        words = (ctypes.c_int64 * len(operands))(*operands)
        enter, address = ENTRY(entry), ctypes.addressof(words)
        with self.signals:
            enter(0, address, 0, 1)
        self.team.reraise()

    def close(self) -> None:
        """Stop the workers."""
        self.team.close()
