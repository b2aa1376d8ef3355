"""A run directory: its lock, its Program, its checkpoints."""

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
from ...units.files import sync_directory, unreachable
from ...units.public import as_path
from .checkpoint import load_checkpoint, save_step, step_files, step_of
from .lock import RunLock

PROGRAM_FILE = "program.edge"
BEST_FILE = "best.ckpt"  # state of the best epoch, if kept
MAX_BAD_STEPS = 25  # so many in a row end a run


def run_directory(path: str | os.PathLike[str]) -> Path:
    """Check that `path` is the directory of a run.

    Raises:
      CheckpointError: it is not; the message names a run next to or below it.
    """
    path = Path(path)
    if os.path.lexists(path / PROGRAM_FILE):
        return path
    result, near = unreachable(path) or "a file, not a directory", []
    if os.path.isdir(path):
        result = "a directory without a run"
        near = sorted(path.glob(f"*/{PROGRAM_FILE}"), key=os.path.getmtime)
    elif os.path.exists(path):
        beside = path.with_name(PROGRAM_FILE)
        near = [beside] * os.path.isfile(beside)
    move = f"Pass {near[-1].parent}." if near else "Check the path."
    raise CheckpointError(f"{path}: {result}; expected a run directory. {move}")


class RunFolder:
    """The directory of a run; only one process at a time writes to it.

    Args:
      path: created when first held, parents included.
      label: its name in messages.
    Attributes:
      warnings: messages for the user; whoever shows them clears the list.
    """

    def __init__(self, path: str | Path, label: str = "out") -> None:
        self.path, self._label = as_path(label, path, "a directory"), label
        self.warnings: list[str] = []
        self._lock: RunLock | None = None
        self._guard, self._holders = allocate_lock(), 0  # number of blocks in `held`
        self._made: list[Path] = []
        self._stale = False  # remove later checkpoints at the next save
        self._newest: int | None = None  # step of this run's newest checkpoint

    @classmethod
    def new(cls, parent: Path, name: str, label: str = "out", first: int = 1) -> "RunFolder":
        """Create the first unused of `parent/NAME-1`, `-2`, ..

        Raises:
          UsageError: it cannot be created.
          RunError: the disk is full.
        """
        for number in range(first, 10**9):
            folder = cls(parent / f"{name}-{number}", label)
            if os.path.lexists(folder.path):
                continue
            try:
                folder._make(exist_ok=False)
            except FileExistsError:
                continue  # another run took it
            except (OSError, ValueError) as error:
                folder._unmake()
                raise unwritable(folder.path, label, error) from error
            return folder
        raise AssertionError("a thousand million runs")

    def beside(self) -> Path | None:
        """If the directory contains another run, use the first unused `NAME-2`, `-3`, ..

        Returns:
          The directory with the other run, or None.
        Raises:
          UsageError, RunError: as for `new`.
        """
        if self._newest is not None or self._stale or self._holders or not step_files(self.path):
            return None
        taken = self.path
        result = RunFolder.new(taken.parent, taken.name or taken.resolve().name, self._label, 2)
        self.path, self._made = result.path, result._made
        return taken

    @property
    def newest(self) -> int | None:
        """Step of the newest checkpoint that this run wrote or resumed, or None."""
        return self._newest

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory's lock within the block; blocks may nest, also across threads.

        Files created for a run that did not start are removed.

        Raises:
          UsageError: another process holds it, or it cannot be created or written.
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
                f"{self.path}: removed a stale lock of {self._lock.replaced}, which has ended."
            )

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _make(self, exist_ok: bool = True) -> None:
        missing = [
            folder for folder in (self.path, *self.path.parents) if not os.path.exists(folder)
        ]
        self._made += missing
        self.path.mkdir(parents=True, exist_ok=exist_ok)
        for folder in missing:
            sync_directory(folder.parent)  # otherwise a power cut could lose the run

    def _unmake(self) -> None:
        for folder in self._made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._made = []

    def keep_program(self, program: Program) -> None:
        """Write the Program of a run that has no checkpoint yet.

        Raises:
          UsageError: the directory has checkpoints of another run.
          RunError: the file cannot be written.
        """
        files = step_files(self.path)
        if self._stale:
            later = [path for path in files if step_of(path) > (self._newest or 0)]
            for path in later:
                path.unlink(missing_ok=True)
            files, self._stale = files[: len(files) - len(later)], False
        if files and step_of(files[-1]) != self._newest:
            raise UsageError(
                f"{self.path}: it already contains another run ({files[-1].name}). Resume it, or "
                f"choose "
                "another directory."
            )
        self._made = []  # the files now belong to a run: keep them
        if not files:
            (self.path / BEST_FILE).unlink(missing_ok=True)  # of a run that was removed
            program.save(self.path / PROGRAM_FILE, links=False)

    def resumed(self, step: int | None = None) -> None:
        """From now on, the existing files belong to this run.

        Args:
          step: step of the checkpoint it continues from; -1: none; None: the newest. Later ones
            are removed when the next is written.
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
        """Write the checkpoint of `step`, and remove old ones above the limit.

        Args:
          bad_steps: number of latest steps without an update. The two newest checkpoints from
            before them are always kept, because the newest may have the failing weights.
          initial, verify: as in `save_step`.
        Raises:
          RunError: it cannot be written, or a value is not finite.
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
        """The run's newest checkpoint up to `step`."""
        files = self._until(step)
        return files[-1] if files else None

    def _until(self, step: int) -> list[Path]:
        if self._newest is None:
            return []
        return [path for path in step_files(self.path) if step_of(path) <= step]

    def before_update(self, updates: int) -> Path | None:
        """The run's newest checkpoint with fewer weight updates than this."""
        for path in self._until(self._newest or 0)[::-1]:
            with contextlib.suppress(CheckpointError):
                if load_checkpoint(path).meta["counters"]["updates"] < updates:
                    return path
        return None
