"""Which checkpoints a run may go on from, and where in its epochs it is."""

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
    """Where a run is in its passes over the data, and what of the epoch is told at its end.

    Attributes:
      epoch, done: passes that have ended, steps of the present one; of data that gives batches.
      ended: an epoch has ended, and callbacks have not been told of it.
      loss, counted: sum of the losses of the epoch's steps so far, and how many: of those whose
        loss is finite and that were not skipped.
      skipped: steps of the epoch so far that were skipped.
    """

    epoch: int = 0
    done: int = 0
    ended: bool = False
    loss: float = 0.0
    counted: int = 0
    skipped: int = 0

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> "Position":
        """Of what `to_json` gave; a sum that is not finite begins anew."""
        position = cls(**found)
        if position.loss is None or not math.isfinite(position.loss):
            position.loss, position.counted = 0.0, 0
        return position

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def add(self, loss: float, skipped: bool) -> None:
        """Count a step, and its loss."""
        self.done, self.skipped = self.done + 1, self.skipped + skipped
        if not skipped and math.isfinite(loss):
            self.loss, self.counted = self.loss + loss, self.counted + 1

    def end_pass(self) -> None:
        """The data's end is reached: another pass is next.

        Raises:
          UsageError: it had no batch.
        """
        if not self.done:
            raise UsageError("fit: a pass over the data gave no batch. Give data with samples.")
        self.epoch, self.done, self.ended = self.epoch + 1, 0, True

    @property
    def mean(self) -> float:
        """The epoch's loss so far; NaN before the first step that counts."""
        return self.loss / self.counted if self.counted else math.nan

    def close(self) -> None:
        """The epoch was told of; another one begins."""
        self.ended, self.loss, self.counted, self.skipped = False, 0.0, 0, 0


def check_recipe(loaded: Loaded, digest: str, where: Any) -> None:
    """Raises CheckpointError: it is the state of another Program than that of this digest."""
    if loaded.meta["recipe"] != digest:
        raise CheckpointError(
            f"{loaded.used}: written by a run with another model or recipe. Resume with the "
            f"Program in {where / PROGRAM_FILE}, or choose another directory."
        )


def check_counts(loaded: Loaded, samples: int, held_out: int, keep_last: bool) -> None:
    """Raises CheckpointError: the run had other data than so many samples, or divided otherwise."""
    meta = loaded.meta
    ran = meta["samples"], meta["held_out"]
    if ran != (samples, held_out):
        raise CheckpointError(
            f"{loaded.used}: the run had {ran[0]} training samples and {ran[1]} held out, the "
            f"data now has {samples} and {held_out}. Resume with the same data and validation."
        )
    if meta.get("keep_last", False) != keep_last:
        raise CheckpointError(
            f"{loaded.used}: the run {'kept' if not keep_last else 'dropped'} the last samples of "
            f"a pass. Resume {'with' if not keep_last else 'without'} keep_last."
        )


def check_labels(loaded: Loaded, labels: tuple[str, ...] | None) -> None:
    """Raises CheckpointError: the run gave its classes other names, or another order."""
    ran = loaded.meta.get("labels")
    if ran is not None and labels is not None and list(labels) != ran:
        raise CheckpointError(
            f"{loaded.used}: the run's classes are {', '.join(ran)[:120]}; the data now has "
            f"{', '.join(labels)[:120]}. Resume with data of the same classes."
        )


def check_schedule(loaded: Loaded, schedule: Schedule | None) -> None:
    """Raises CheckpointError: another schedule was asked for than the run has."""
    ran = Schedule.of_json(loaded.meta["schedule"])
    if schedule is not None and _asked(schedule, ran) != ran:
        raise CheckpointError(
            f"{loaded.used}: the run has a {ran.name} schedule, asked for is another one. Resume "
            "without these options; the learning rate may be changed (--lr R)."
        )


def other_rates(
    meta: Mapping[str, Any],
    recipe: Mapping[str, Any],
    lr: float | None,
    changes: Mapping[str, float],
) -> dict[str, tuple[float, float]]:
    """What is to be changed when a run goes on: name -> (as it was, as it is to be).

    Args:
      meta: of the checkpoint.
      lr: that was asked for; the one that the run began with changes nothing.
      changes: clipping and loss scale that were asked for.
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
    """The newest state from before steps began to fail; None if there is none.

    Weights that fail in every step from some update on are passed over, though they are finite.
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
    """Raises CheckpointError: the run ended because no step had finite gradients any more."""
    if not loaded.meta.get("diverged"):
        return
    good = last_good(directory, loaded)
    start = f"from {good.used.name}" if good else "from the initial weights"
    raise CheckpointError(
        f"{loaded.used}: the run diverged, {_bad_steps(loaded)} steps in a row without finite "
        f"gradients. Go on {start} with a lower learning rate than {loaded.meta['lr']:g}: "
        f"--resume {directory} --lr R (in Python lr=R), or with --max-grad-norm G."
    )


def _bad_steps(loaded: Loaded) -> int:
    return int(loaded.meta["counters"]["bad_steps"])


def _asked(schedule: Schedule, ran: Schedule) -> Schedule:
    """A schedule with the run's own of what nobody asks for."""
    unasked = {f.name: getattr(ran, f.name) for f in fields(ran) if about(f).flag is None}
    return replace(schedule, **unasked) if type(schedule) is type(ran) else schedule


def _began(meta: Mapping[str, Any]) -> float:
    """The rate that a run began with."""
    return float(meta.get("started_lr", meta["lr"]))
