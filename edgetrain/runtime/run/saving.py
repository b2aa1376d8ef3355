"""Writes a run's checkpoints, and explains a run without progress.

A step without finite gradients, or with all targets ignored, is skipped: it counts as a step
(counter, data cursor, learning rate), but not as an update. Many in a row end the run with an
error; so does a run without any update.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RunError, UsageError
from ...kernels import control
from ...optim import OPTIMIZERS
from ...program import TARGET
from ...program.finite import finite_part, nonfinite
from ..session import ALL_ZERO, IGNORED, NEITHER, Session, StepResult
from .checkpoint import load_checkpoint, save_checkpoint
from .fields import check_best
from .folder import BEST_FILE, MAX_BAD_STEPS, RunFolder
from .record import Record
from .state import load_state

NOT_FINITE = "gradients not finite"  # as in StepResult.reason


class CheckpointWriter:
    """Checkpoints of a session, and the record of its skipped steps.

    Args:
      folder: None: write nothing.
      save_total_limit: checkpoints to keep; None keeps all.
      record: receives events, and writes what a checkpoint doesn't contain.
      verify: read checkpoints back from the disk.
    Attributes:
      diverged: the run ends because gradients are no longer finite.
    """

    def __init__(
        self,
        session: Session,
        folder: RunFolder | None,
        save_total_limit: int | None,
        record: Record,
        verify: bool = False,
    ) -> None:
        self._saved, self._verify, self._spoiled = "", verify, ""
        self.diverged = False
        self._session, self._folder, self._limit = session, folder, save_total_limit
        self._emit = self._record = record
        self._skipped: Counter[str] = Counter()  # reasons since the last update
        self._skipped_at: Counter[str] = Counter()  # the same at the last checkpoint
        self._best: tuple[dict[str, np.ndarray], Mapping[str, Any]] | None = None
        self._taken: Mapping[str, Any] = {}  # metadata of a best state not yet written
        program = session.program
        # Values that training doesn't change need not be finite.
        self._fixed = {
            slot.name: np.array(program.init[slot.name])  # copied: its file may be truncated later
            for slot in program.persistent
            if slot.role == "buffer" and slot.name in program.init
        }

    @property
    def _recipe(self) -> str:
        return self._session.program.digest()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run directory's lock, and report its warnings."""
        if self._folder is None:
            yield
            return
        with self._folder.held():
            while self._folder.warnings:
                self._emit({"event": "warning", "message": self._folder.warnings.pop(0)})
            yield

    def save(self, meta: Mapping[str, Any]) -> Path | None:
        """Write a checkpoint.

        Returns:
          None without a directory, or if the state is not finite while steps are being skipped:
          then it only warns and keeps older checkpoints.
        Raises:
          RunError: the state is not finite, or cannot be written.
        """
        if self._folder is None:
            return None
        with self._session.turn:
            return self._save(self._folder, meta)

    def _save(self, folder: RunFolder, meta: Mapping[str, Any]) -> Path | None:
        step, bad_steps = self._session.step, self._session.bad_steps
        wrong = self._not_finite()
        if wrong and not bad_steps:
            raise RunError(self._broken(wrong))
        if wrong:
            text = f"step {step}: not saved, because {wrong} is not finite; "
            message = f"{text}{self.last_state()}."
            self._emit({"event": "warning", "message": message})
            return None
        with self.writing():
            self._record.keep_epochs()
            path = folder.save(
                step,
                self._session.state(),
                meta,
                save_total_limit=self._limit,
                bad_steps=bad_steps,
                initial=self._fixed,
                verify=self._verify,
            )
        self._saved, self._skipped_at = repr(meta), Counter(self._skipped)
        self._emit({"event": "save", "step": step, "path": str(path)})
        return path

    def check_finite(self) -> None:
        """Raise RunError if the state is not finite."""
        wrong = self._not_finite()
        if wrong:
            raise RunError(self._broken(wrong))

    def keep_best(self) -> None:
        """Keep a copy of the state outside the checkpoints: in a file, or in memory.

        Raises:
          RunError: the state is not finite, or cannot be written.
        """
        state, counters = self._session.state(), self._session.counters()
        self.check_finite()
        if self._folder is None:
            self._best = {name: array.copy() for name, array in state.items()}, counters
            return
        meta = {"step": self._session.step, "counters": counters, "recipe": self._recipe}
        with self.writing():
            save_checkpoint(self._folder.path / BEST_FILE, state, meta, keep_previous=False)

    def take_best(self, directory: Path) -> None:
        """Take over the best state of another run directory, if it has one."""
        path = directory / BEST_FILE
        own = self._folder is not None and os.path.realpath(self._folder.path / BEST_FILE)
        if os.path.lexists(path) and os.path.realpath(path) != own:
            loaded = check_best(load_checkpoint(path), self._recipe)
            self._best, self._taken = (loaded.tensors, loaded.meta.get("counters", {})), loaded.meta

    def write_taken(self) -> None:
        """Write the best state of `take_best` into the run's directory, where `export` looks."""
        if self._folder is not None and self._best is not None and self._taken:
            with self.writing():
                path = self._folder.path / BEST_FILE
                save_checkpoint(path, self._best[0], self._taken, keep_previous=False)
            self._best, self._taken = None, {}

    def restore_best(self) -> None:
        """Restore the state saved by `keep_best`; steps and loss scale go on.

        Raises:
          UsageError: nothing was kept.
          CheckpointError: the file cannot be used.
        """
        result, label = self._best, "the best state"
        if self._folder is not None and os.path.lexists(self._folder.path / BEST_FILE):
            loaded = check_best(load_checkpoint(self._folder.path / BEST_FILE), self._recipe)
            counters = loaded.meta.get("counters", {})  # older files have none
            result, label = (loaded.tensors, counters), str(loaded.used)
        if result is None:
            raise UsageError("restore_best: there is no best state yet. Train with KeepBest().")
        tensors, counters = result
        with self._session.turn:
            load_state(self._session, tensors, label)
            if counters:
                counters = {**self._session.counters(), **control.of_state(counters)}
                self._session.set_counters(self._session.step, counters)

    def count(self, result: StepResult, spoiled: str = "") -> None:
        """Count a step.

        Args:
          spoiled: the input or target of its samples that is not finite, if it was skipped.
        Raises:
          RunError: MAX_BAD_STEPS steps in a row were skipped.
        """
        if result.reason is None:
            self._skipped.clear()
        else:
            self._skipped[result.reason] += 1
        bad_steps = self._session.bad_steps
        self.diverged = bad_steps >= MAX_BAD_STEPS and {*self._skipped} == {NOT_FINITE}
        self.diverged &= not spoiled
        self._spoiled = spoiled
        if bad_steps >= MAX_BAD_STEPS:
            raise RunError(
                f"step {self._session.step}: {bad_steps} steps in a row did not update the "
                f"weights: {self._reasons()}; {self.last_state()}."
            )

    def went_back(self) -> None:
        """The run continues from its last checkpoint; steps since then will be counted again."""
        self._skipped = Counter(self._skipped_at)

    def conclude(self, meta: Mapping[str, Any]) -> None:
        """Save the final state if it changed since the last save: callbacks may have run, and must
        not run again when the run is resumed.

        Raises:
          RunError: no step updated the weights, or they are not finite.
        """
        if not self._session.ints[control.ADAM_T]:
            raise RunError(
                f"none of {self._session.step} steps updated the weights: {self._reasons()}; "
                f"{self.last_state()}."
            )
        self.check_finite()
        if self._saved != repr(meta):
            self.save(meta)

    def last_state(self) -> str:
        """A sentence about the last good state, from before skipped steps."""
        good = self._session.step - self._session.bad_steps
        if self.diverged and self._folder is not None:
            updates = int(self._session.ints[control.ADAM_T])
            path = self._folder.before_update(updates)
            start = f"the last good state is {path}" if path else "no earlier state was saved"
            whence = "it" if path else "the initial weights"
            return (
                f"{start}; --resume {self._folder.path} --lr R (in Python resume=True, lr=R) "
                f"continues from {whence}"
            )
        path = self._folder.last_good(good) if self._folder else None
        return f"the last good state is {path}" if path else "no state was saved"

    def _not_finite(self) -> str:
        return nonfinite(finite_part(self._session.state(), self._fixed))

    def _broken(self, name: str) -> str:
        return (
            f"step {self._session.step}: {name} is not finite. Lower the learning rate; "
            f"{self.last_state()}."
        )

    def _reasons(self) -> str:
        """Why steps were skipped since the last update, and advice."""
        ignored = self._session.program.ignored_of(TARGET)
        advice = {
            IGNORED: f"all targets are ignored (ignore_index {ignored}); check the labels",
            ALL_ZERO: "all sample weights are 0; check the data's field w",
            NEITHER: f"all targets are ignored (ignore_index {ignored}) or have weight 0; check "
            "the labels and the data's field w",
            NOT_FINITE: f"gradients or statistics are not finite; {self._advice()}",
        }
        result = [f"in {count} of them {advice[why]}" for why, count in self._skipped.items()]
        return ", ".join(result) or "all were skipped"

    def _advice(self) -> str:
        """What to do about gradients that are not finite."""
        if self._spoiled:
            return f"{self._spoiled} of their samples is not finite; correct the data"
        return f"lower the learning rate{_of_transformers(self._session)}"


def _of_transformers(session: Session) -> str:
    """Advice for models with layer-norms, which need lower learning rates."""
    program = session.program
    if not any(row[0].startswith(("layer_norm", "attention")) for row in program.kernels):
        return ""
    rate = OPTIMIZERS[program.recipe["optimizer"]["name"]].usual_lr
    return f" (transformers: --lr {rate} --lr-schedule cosine --warmup-steps 100 --max-grad-norm 1)"
