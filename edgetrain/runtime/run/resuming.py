"""Checks which checkpoints a run may resume from, and tracks its position in epochs."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ...errors import CheckpointError
from ...optim import Schedule
from ...units.plugin import about
from .checkpoint import Loaded, load_checkpoint, step_files
from .fields import check_run
from .folder import MAX_BAD_STEPS, PROGRAM_FILE


def check_recipe(loaded: Loaded, digest: str, where: Any) -> None:
    """Raise CheckpointError if the state belongs to another Program."""
    if loaded.meta["recipe"] != digest:
        raise CheckpointError(
            f"{loaded.used}: written by a run with another model or other compile options. Resume "
            f"with its Program, {where / PROGRAM_FILE}, or choose another directory."
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


def check_lengths(loaded: Loaded, lengths: Mapping[str, int]) -> None:
    """Raise CheckpointError if the lengths of samples have changed; a stored state has none."""
    ran = loaded.meta.get("lengths")
    if ran is not None and ran != lengths:
        told = [
            ", ".join(f"{k}: {n}" for k, n in item.items()) or "none" for item in (ran, lengths)
        ]
        raise CheckpointError(
            f"{loaded.used}: the run had samples by length {told[0]}; the data has {told[1]}. "
            "Resume with the same data."
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
    """Raise CheckpointError if the requested schedule differs from the run's."""
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
    result = {}
    started = () if meta.get("diverged") else (float(meta.get("started_lr", meta["lr"])),)
    same = (*started, meta["lr"])
    if lr is not None and lr not in same:
        result["lr"] = float(meta["lr"]), float(lr)
    usual = {
        "max_grad_norm": recipe.get("max_grad_norm") or 0.0,
        "loss_scale": recipe.get("loss_scale") or meta["counters"]["loss_scale"],
    }
    for name, value in changes.items():
        before = float(meta.get("changed", {}).get(name, usual[name]))
        if value != before:
            result[name] = before, value
    return result


def last_good(directory: Path, newest: Loaded) -> Loaded | None:
    """The newest state from before the failed steps, or None.

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
