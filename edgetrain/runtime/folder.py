"""A run's directory: who may write into it, its Program, its checkpoints."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler.program import Program
from ..errors import UsageError
from ..storage.atomic import clean_temporaries, unwritable
from .checkpoint import save_step, step_files, step_of
from .lock import RunLock

PROGRAM_FILE = "program.edge"


class RunFolder:
    """The directory of one run, which one process at a time writes.

    Args:
      path: made where it is missing, with the directories above it, when it is first held.
      label: what messages call it.
    Attributes:
      warnings: to be shown to the user; whoever shows them empties the list.
    """

    def __init__(self, path: str | Path, label: str = "out") -> None:
        self.path, self._label = Path(path), label
        self.warnings: list[str] = []
        self._lock: RunLock | None = None
        self._made: list[Path] = []
        self._newest: int | None = None  # step of the newest checkpoint that is this run's

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory for the block; inside another such block, do nothing.

        Raises:
          UsageError: another process holds it, or it cannot be made or written.
          RunError: the disk is full.
        """
        if self._lock is not None:
            yield
            return
        try:
            self._make()
            self._lock = RunLock(self.path)
        except (OSError, ValueError) as error:
            self.discard()
            raise unwritable(self.path, self._label, error) from error
        except BaseException:
            self.discard()
            raise
        try:
            if self._lock.replaced is not None:
                self.warnings.append(
                    f"{self.path}: the lock of {self._lock.replaced}, which ended without taking "
                    "it away, is taken over."
                )
            clean_temporaries(self.path)
            yield
        finally:
            self._lock.release()
            self._lock = None

    def _make(self) -> None:
        missing = [self.path, *self.path.parents]
        self._made = [folder for folder in missing if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)

    def discard(self) -> None:
        """Remove the directories that were made for the run and are still empty."""
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()
        self._made = []

    def keep_program(self, program: Program) -> None:
        """Write the Program of a run that has no checkpoint yet.

        Raises:
          UsageError: checkpoints are there that this run neither wrote nor resumed.
          RunError: it cannot be written.
        """
        files = step_files(self.path)
        if files and step_of(files[-1]) != self._newest:
            raise UsageError(
                f"{self.path}: holds another run already ({files[-1].name}). Resume it, or choose "
                "another directory."
            )
        if not files:
            program.save(self.path / PROGRAM_FILE)

    def resumed(self) -> None:
        """What is there now is this run's."""
        files = step_files(self.path)
        self._newest = step_of(files[-1]) if files else None

    def save(
        self,
        step: int,
        tensors: Mapping[str, np.ndarray],
        meta: Mapping[str, Any],
        *,
        save_total_limit: int | None,
        bad_steps: int = 0,
        initial: Mapping[str, np.ndarray] | None = None,
    ) -> Path:
        """Write the checkpoint of `step`; older ones beyond the limit go.

        Args:
          bad_steps: steps in a row up to this one without an update; the newest checkpoint from
            before them stays whatever the limit.
          initial: as in `save_step`.
        Raises:
          RunError: it cannot be written, or something in it is not finite.
        """
        good = self.last_good(step - bad_steps) if bad_steps else None
        path = save_step(
            self.path, step, tensors, meta, save_total_limit=save_total_limit, keep=good,
            initial=initial,
        )  # fmt: skip
        self._newest = step
        return path

    def last_good(self, step: int) -> Path | None:
        """The run's newest checkpoint of `step` or an earlier one."""
        if self._newest is None:
            return None
        files = [path for path in step_files(self.path) if step_of(path) <= step]
        return files[-1] if files else None
