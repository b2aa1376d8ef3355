"""A run's directory: who may write into it, its Program, its checkpoints."""

import contextlib
import os
from _thread import allocate_lock
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CheckpointError, UsageError
from ...program import Program
from ...program.atomic import clean_temporaries, unwritable
from ...units.files import sync_directory
from .checkpoint import load_checkpoint, save_step, step_files, step_of
from .lock import RunLock

PROGRAM_FILE = "program.edge"
BEST_FILE = "best.ckpt"  # the state of the best epoch, where it is kept


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
        self._guard, self._holders = allocate_lock(), 0  # blocks that are in `held`
        self._made: list[Path] = []
        self._stale = False  # later checkpoints there are given up
        self._newest: int | None = None  # step of the newest checkpoint that is this run's

    @classmethod
    def new(cls, parent: Path, name: str, label: str = "out", first: int = 1) -> "RunFolder":
        """The first of `parent/NAME-1`, `-2`, .. that nobody has, made.

        Raises:
          UsageError: it cannot be made.
          RunError: the disk is full.
        """
        for number in range(first, 10**9):
            folder = cls(parent / f"{name}-{number}", label)
            if os.path.lexists(folder.path):
                continue
            try:
                folder._make(exist_ok=False)
            except FileExistsError:
                continue  # another run was faster
            except (OSError, ValueError) as error:
                folder._unmake()
                raise unwritable(folder.path, label, error) from error
            return folder
        raise AssertionError("a thousand million runs")

    def beside(self) -> Path | None:
        """If another run is in the directory, use the first free `NAME-2`, `-3`, .. beside it.

        Returns:
          The directory with the other run; None if there is none.
        Raises:
          UsageError, RunError: as `new`.
        """
        if self._newest is not None or self._stale or self._holders or not step_files(self.path):
            return None
        taken = self.path
        found = RunFolder.new(taken.parent, taken.name or taken.resolve().name, self._label, 2)
        self.path, self._made = found.path, found._made
        return taken

    @property
    def newest(self) -> int | None:
        """Step of the newest checkpoint that this run wrote or resumed; None before."""
        return self._newest

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory for the block; inside another such block, or while
        another thread is in one, do nothing.

        What was made for a run that did not begin is removed.

        Raises:
          UsageError: another process holds it, or it cannot be made or written.
          RunError: the disk is full.
        """
        with contextlib.ExitStack() as stack:
            unmake = stack.enter_context(contextlib.ExitStack())
            with self._guard:
                if not self._holders:
                    unmake.callback(self._unmake)
                    self._take()
                self._holders += 1
            stack.callback(self._leave)
            yield
            unmake.pop_all()

    def _leave(self) -> None:
        with self._guard:
            self._holders -= 1
            if not self._holders:
                self._release()

    def _take(self) -> None:
        try:
            self._make()
            self._lock = RunLock(self.path)
        except (OSError, ValueError) as error:
            raise unwritable(self.path, self._label, error) from error
        clean_temporaries(self.path)
        if self._lock.replaced is not None:
            self.warnings.append(
                f"{self.path}: took over the lock of {self._lock.replaced}, which ended without "
                "removing it."
            )

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _make(self, exist_ok: bool = True) -> None:
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self._made += missing
        self.path.mkdir(parents=True, exist_ok=exist_ok)
        for folder in missing:
            sync_directory(folder.parent)  # or a power cut takes the run with its checkpoints

    def _unmake(self) -> None:
        for folder in self._made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._made = []

    def keep_program(self, program: Program) -> None:
        """Write the Program of a run that has no checkpoint yet.

        Raises:
          UsageError: checkpoints are there that this run neither wrote nor resumed.
          RunError: it cannot be written.
        """
        files = step_files(self.path)
        if self._stale:
            later = [path for path in files if step_of(path) > (self._newest or 0)]
            for path in later:
                path.unlink(missing_ok=True)
            files, self._stale = files[: len(files) - len(later)], False
        if files and step_of(files[-1]) != self._newest:
            raise UsageError(
                f"{self.path}: already contains another run ({files[-1].name}). Resume it, or "
                f"choose "
                "another directory."
            )
        self._made = []  # from here on it is a run's, whatever comes
        if not files:
            program.save(self.path / PROGRAM_FILE, links=False)

    def resumed(self, step: int | None = None) -> None:
        """What is there now is this run's.

        Args:
          step: of the checkpoint that it goes on from, -1: of none; later ones go when the next
            state is written. None: of the newest.
        """
        files = step_files(self.path)
        newest = step_of(files[-1]) if files else None
        self._newest = newest if step is None else step if step >= 0 else None
        self._stale = self._newest != newest

    def save(
        self,
        step: int,
        tensors: Mapping[str, np.ndarray],
        meta: Mapping[str, Any],
        *,
        save_total_limit: int | None,
        bad_steps: int = 0,
        initial: Mapping[str, np.ndarray] | None = None,
        verify: bool = False,
    ) -> Path:
        """Write the checkpoint of `step`; older ones beyond the limit go.

        Args:
          bad_steps: steps in a row up to this one without an update; the two newest checkpoints
            from before them stay whatever the limit: the newest may be of the weights that fail.
          initial, verify: as in `save_step`.
        Raises:
          RunError: it cannot be written, or something in it is not finite.
        """
        good = self._until(step - bad_steps)[-2:] if bad_steps else []
        path = save_step(
            self.path,
            step,
            tensors,
            meta,
            save_total_limit=save_total_limit,
            keep=good,
            initial=initial,
            verify=verify,
        )
        self._newest = step
        return path

    def last_good(self, step: int) -> Path | None:
        """The run's newest checkpoint of `step` or an earlier one."""
        files = self._until(step)
        return files[-1] if files else None

    def _until(self, step: int) -> list[Path]:
        if self._newest is None:
            return []
        return [path for path in step_files(self.path) if step_of(path) <= step]

    def before_update(self, updates: int) -> Path | None:
        """The run's newest checkpoint that has fewer updates of the weights."""
        for path in self._until(self._newest or 0)[::-1]:
            with contextlib.suppress(CheckpointError):
                if load_checkpoint(path).meta["counters"]["updates"] < updates:
                    return path
        return None
