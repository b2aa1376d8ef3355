"""Checks which checkpoints a run may resume from, and tracks its position in epochs."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ...errors import CheckpointError, UsageError
from ...optim import Schedule
from ...units.plugin import about
from .checkpoint import Loaded, load_checkpoint, step_files
from .fields import check_run
from .folder import PROGRAM_FILE

MAX_BAD_STEPS = 25  # in a row end a run


@dataclass
class Position:
    """A run's position in its passes over the data, and totals of the current epoch.

    Attributes:
      epoch, done: finished passes, and steps in the current one (for data in batches).
      ended: an epoch has ended, but callbacks have not been called yet.
      loss, counted: sum and number of the epoch's losses so far, without skipped steps and
        non-finite losses.
      skipped: skipped steps of the epoch so far.
    """

    epoch: int = 0
    done: int = 0
    ended: bool = False
    loss: float = 0.0
    counted: int = 0
    skipped: int = 0

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> "Position":
        """Restore the result of `to_json`; a non-finite sum restarts at 0."""
        position = cls(**found)
        if position.loss is None or not math.isfinite(position.loss):
            position.loss, position.counted = 0.0, 0
        return position

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def add(self, loss: float, skipped: bool) -> None:
        """Add a step and its loss."""
        self.done, self.skipped = self.done + 1, self.skipped + skipped
        if not skipped and math.isfinite(loss):
            self.loss, self.counted = self.loss + loss, self.counted + 1

    def end_pass(self) -> None:
        """End a pass over the data.

        Raises:
          UsageError: the pass had no batches.
        """
        if not self.done:
            raise UsageError("fit: the data returned no batches. Pass data with samples.")
        self.epoch, self.done, self.ended = self.epoch + 1, 0, True

    @property
    def mean(self) -> float:
        """The epoch's mean loss so far; NaN before the first counted step."""
        return self.loss / self.counted if self.counted else math.nan

    def close(self) -> None:
        """Start the next epoch, after callbacks were called."""
        self.ended, self.loss, self.counted, self.skipped = False, 0.0, 0, 0


def check_recipe(loaded: Loaded, digest: str, where: Any) -> None:
    """Raise CheckpointError if the state belongs to another Program."""
    if loaded.meta["recipe"] != digest:
        raise CheckpointError(
            f"{loaded.used}: written by a run with another model or recipe. Resume with "
            f"{where / PROGRAM_FILE}, or choose another directory."
        )


def check_counts(loaded: Loaded, samples: int, held_out: int, keep_last: bool) -> None:
    """Raise CheckpointError if the data or its split has changed."""
    meta = loaded.meta
    ran = meta["samples"], meta["held_out"]
    if ran != (samples, held_out):
        raise CheckpointError(
            f"{loaded.used}: the run had {ran[0]} training and {ran[1]} held-out samples; the data "
            f"has {samples} and {held_out}. Resume with the same data and validation."
        )
    if meta.get("keep_last", False) != keep_last:
        raise CheckpointError(
            f"{loaded.used}: the run {'kept' if not keep_last else 'dropped'} partial minibatches. "
            f"Resume {'with' if not keep_last else 'without'} keep_last."
        )


def check_labels(loaded: Loaded, labels: tuple[str, ...] | None) -> None:
    """Raise CheckpointError if class names or their order have changed."""
    ran = loaded.meta.get("labels")
    if ran is not None and labels is not None and list(labels) != ran:
        raise CheckpointError(
            f"{loaded.used}: the run has classes {', '.join(ran)[:120]}; the data has "
            f"{', '.join(labels)[:120]}. Resume with the same classes."
        )


def check_schedule(loaded: Loaded, schedule: Schedule | None) -> None:
    """Raise CheckpointError if another schedule is requested than the run has."""
    ran = Schedule.of_json(loaded.meta["schedule"])
    if schedule is not None and _asked(schedule, ran) != ran:
        raise CheckpointError(
            f"{loaded.used}: the run's schedule ({ran.name}) can't be changed. Resume without "
            "schedule options; you can change the learning rate (--lr R)."
        )


def other_rates(
    meta: Mapping[str, Any],
    recipe: Mapping[str, Any],
    lr: float | None,
    changes: Mapping[str, float],
) -> dict[str, tuple[float, float]]:
    """Changes for a resumed run: name -> (old value, new value).

    Args:
      meta: metadata of the checkpoint.
      lr: requested learning rate; no change if the run started with it.
      changes: requested clipping and loss scale.
    """
    found = {}
    same = (meta["lr"],) if meta.get("diverged") else (_began(meta), meta["lr"])
    if lr is not None and lr not in same:
        found["lr"] = float(meta["lr"]), float(lr)
    usual = {"max_grad_norm": recipe.get("max_grad_norm") or 0.0,
             "loss_scale": recipe.get("loss_scale") or meta["counters"]["loss_scale"]}  # fmt: skip
    for name, value in changes.items():
        before = float(meta.get("changed", {}).get(name, usual[name]))
        if value != before:
            found[name] = before, value
    return found


def last_good(directory: Path, newest: Loaded) -> Loaded | None:
    """The newest state from before the steps that failed; None if there is none.

    Finite weights with which every further step failed are not used either.
    """
    if not _bad_steps(newest):
        return newest
    updates = newest.meta["counters"]["updates"]
    stuck = _bad_steps(newest) >= MAX_BAD_STEPS
    for path in step_files(directory)[::-1]:
        try:
            loaded = load_checkpoint(path)
        except CheckpointError:
            continue
        check_run(loaded)
        if not _bad_steps(loaded) and (loaded.meta["counters"]["updates"] < updates or not stuck):
            return loaded
    return None


def check_alive(loaded: Loaded, directory: Path) -> None:
    """Raise CheckpointError if the run has diverged."""
    if not loaded.meta.get("diverged"):
        return
    good = last_good(directory, loaded)
    start = f"from {good.used.name}" if good else "from the initial weights"
    raise CheckpointError(
        f"{loaded.used}: the run diverged: {_bad_steps(loaded)} steps in a row had non-finite "
        f"gradients. Resume {start} with a learning rate below {loaded.meta['lr']:g} "
        f"(--resume {directory} --lr R; in Python lr=R), or with --max-grad-norm G."
    )


def _bad_steps(loaded: Loaded) -> int:
    return int(loaded.meta["counters"]["bad_steps"])


def _asked(schedule: Schedule, ran: Schedule) -> Schedule:
    """The requested schedule, completed with the run's own values."""
    unasked = {f.name: getattr(ran, f.name) for f in fields(ran) if about(f).flag is None}
    return replace(schedule, **unasked) if type(schedule) is type(ran) else schedule


def _began(meta: Mapping[str, Any]) -> float:
    """The learning rate the run started with."""
    return float(meta.get("started_lr", meta["lr"]))
