"""Runs tapes: they are proved once (runtime/loading/tapes.py), then workers enter without Python.

Kernels come from an installed library, or the disk cache where they were compiled before.
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import ProgramError, UsageError
from ..kernels import registry
from ..kernels.cache.load import addresses
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
    """A tape, the kernels that it numbers, operands of the interpreter; none may move."""

    words: np.ndarray
    table: np.ndarray
    operands: np.ndarray


# What a session asks for once its tapes are there.
DRIVE = "drive_train", "drive_evaluate", "rate_constant"


class Executor:
    """Checked tapes over one arena, and the workers that run them.

    Args:
      threads: workers; at most the Program's.
      beside: of another set of tapes in the same arena, whose workers run these too.
    Attributes:
      team: the workers.
      memo: how long short tapes took alone and together (kernels/drive/team.py).
      signals: held back while machine code runs.
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
                f"threads {self.threads}: the Program has workspaces for 1 to {program.threads}. "
                "Give fewer, or compile with as many threads."
            )
        assert program.arena_nbytes <= arena.nbytes
        self._kernels = kernels = check_program(program, program.arena_nbytes)
        placed = Placed(program, arena.address, kernels) if program.mapped else None
        self._base, self._process = arena.address, os.getpid()
        self._rewrites = rewrites(program.recipe)
        drive = () if beside else (*kernels_of(self.threads), *DRIVE)
        self._table, entry = self._load(kernels, drive)
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
        """The table of the kernels' addresses, and the interpreter's address.

        Args:
          soon: names of those without storages that are asked for next.
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
        """Address of the interpreter's operands for a tape; 0 where it has no instruction."""
        found = self._tapes[tape]
        return found.operands.ctypes.data if len(found.words) else 0

    def add(self, tape: str, calls: Sequence[tuple[str, Mapping[str, int]]]) -> int:
        """Another tape, of kernels without storages and the words of their operands; of one thread,
        which `memo` has no place for.

        Returns:
          As `operands`.
        """
        kernels, words = [registry.variants(name)[-1] for name, _ in calls], list[int]()
        for number, (kernel, (_, operands)) in enumerate(zip(kernels, calls, strict=True)):
            own = [operands[operand.name] for operand in kernel.spec.operands]
            words += [number, len(own), *own]
        table, _ = self._load([(kernel, {}) for kernel in kernels])
        self._keep(tape, np.array(words, np.int64), table, self._base)
        return self.operands(tape)

    def put(self, tape: str, kernel: str, operand: str, value: float) -> None:
        """Change a number, a float32, of every instruction of a kernel, from its next run on."""
        found = self._tapes[tape]
        words, bits = found.words.copy(), int(np.float32(value).view(np.uint32))
        for instruction in decode(words.tolist(), self._kernels):
            if instruction.kernel.name == kernel:
                place = [*instruction.values].index(operand)
                assert instruction.scratch is None
                words[instruction.at + 2 + place] = bits
        start = words.ctypes.data
        found.operands[1:3] = start, start + words.nbytes
        self._tapes[tape] = found._replace(words=words)

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that made this."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Refuse to work in a fork of the process that made this.

        Raises:
          UsageError: the workers are not there, and the arena's bytes are shared with the parent.
        """
        if self.is_forked:
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
                self.team(operands)

    def call(self, entry: int, *operands: int) -> None:
        """Call a kernel that takes addresses and integers, on this thread.

        Raises:
          UsageError: the session is closed, or belongs to another process.
          BaseException: what was raised while the workers ran.
        """
        self.check_process()
        self.team.check_open()
        words = (ctypes.c_int64 * len(operands))(*operands)
        enter, at = ENTRY(entry), ctypes.addressof(words)
        with self.signals:
            enter(0, at, 0, 1)
        self.team.reraise()

    def close(self) -> None:
        """End the workers."""
        self.team.close()
