"""Converts a bundle's stored state to a checkpoint, and prepares a run's state for a bundle."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CheckpointError, UsageError
from ...kernels import control
from ...kernels.device import layout as device
from ...optim import Schedule, loss_scale_of
from ...program import Program
from ...program.stored import read_stored
from ..session import seen_words
from .checkpoint import Loaded

SCHEDULES = device.SCHEDULES
_SIZE = {"step": "step_size", "inverse_sqrt": "timescale", "plateau": "window"}
_GAMMA = ("step", "exponential", "multistep", "plateau")


def stored_checkpoint(
    path: str | os.PathLike[str],
    program: Program,
    samples: int,
    held_out: int,
    keep_last: bool = False,
) -> Loaded:
    """Convert a stored state to a checkpoint of a run with this many samples.

    Raises:
      CheckpointError: as in `read_stored`, or the file's suffix is of something else.
    """
    _check_kind(Path(path))
    found = read_stored(path, program)
    block, reals = found.block, found.block.view(np.float64)
    total = int(block[control.TOTAL_STEPS])
    schedule = _schedule(block, str(path))
    counters = control.counted(block, reals)
    if not found.exact:
        counters["loss_scale"] = loss_scale_of(
            program.recipe["precision"], program.recipe.get("loss_scale")
        ).start
    meta = {
        "step": int(block[control.STEP]),
        "total_steps": total,
        "counters": counters,
        "lr": float(reals[control.BASE_LR]),
        "schedule": schedule.to_json(),
        "seen": _seen(schedule, reals),
        "recipe": program.digest(),
        "samples": samples,
        "held_out": held_out,
        "keep_last": keep_last,
    }
    said = f"{path}: from a Program compiled differently; training continues, but bits may differ."
    return Loaded(found.tensors, meta, Path(path), None if found.exact else said)


def _check_kind(path: Path) -> None:
    kinds = {".edge": "a Program", ".onnx": "a model", ".ckpt": "a checkpoint of a run"}
    if path.suffix in kinds:
        folder = f", such as {str(path.parent)!r}" if path.suffix == ".ckpt" else ""
        raise CheckpointError(
            f"{path}: {kinds[path.suffix]}; expected a stored state of a bundle, or a run "
            f"directory{folder}."
        )


def keep_schedule(block: np.ndarray, schedule: Schedule) -> None:
    """Store the schedule in a control block, for a bundle that continues the run.

    Raises:
      UsageError: bundles don't support the schedule.
    """
    if schedule.name not in SCHEDULES:
        raise UsageError(
            f"schedule {schedule.name}: bundles support only {', '.join(SCHEDULES)}. Use one of "
            "these."
        )
    own = schedule.to_json()
    size = own.get(_SIZE.get(schedule.name, ""), 0)
    if schedule.name == "multistep":
        size = len(own["milestones"])
        if size > device.DROPS:
            raise UsageError(
                f"schedule multistep: {size} milestones; bundles support at most "
                f"{device.DROPS}. Use fewer."
            )
        block[control.SEEN : control.SEEN + size] = own["milestones"]
    first = control.RATE + device.SAVED_WINDOWS
    block[first : first + 2] = own.get("patience", 0), own.get("cooldown", 0)
    first = control.RATE + device.SAVED_RATE
    block[first : first + 2] = SCHEDULES.index(schedule.name), size


def _schedule(block: np.ndarray, label: str) -> Schedule:
    """The schedule stored in a control block."""
    words = block[control.RATE : control.RATE + control.RATE_WORDS]
    numbers = words.view(np.float64).tolist()
    kind, size = words[device.SAVED_RATE :].tolist()
    name = SCHEDULES[kind] if 0 <= kind < len(SCHEDULES) else str(kind)
    own: dict[str, Any] = {_SIZE[name]: size} if name in _SIZE else {}
    if name in _GAMMA:
        own["gamma"] = numbers[0]
    if name == "plateau":
        patience, cooldown = words[device.SAVED_WINDOWS : device.SAVED_RATE].tolist()
        own |= {"patience": patience, "cooldown": cooldown}
        own |= {"threshold": numbers[1], "min_lr": numbers[2], "skipped": False}
    elif name == "multistep":
        milestones = block[control.SEEN : control.SEEN + min(max(size, 0), device.DROPS)]
        own["milestones"] = milestones.tolist()
    elif name == "one_cycle":
        own = _cycle(*numbers[:3])
    warmup, total = int(block[control.WARMUP]), int(block[control.TOTAL_STEPS])
    try:
        record = {"name": name, "warmup_steps": warmup, "total_steps": total, **own}
        return Schedule.of_json(record)
    except UsageError as reason:
        raise CheckpointError(f"{label}: {reason} Use another copy.") from None


def _cycle(rise: float, first: float, last: float) -> dict[str, float]:
    """Options of one_cycle that yield these numbers, or the closest ones."""
    options = {"pct_start": rise}
    for name, above, below in (("div_factor", 1.0, first), ("final_div_factor", first, last)):
        near = above / below if below else np.inf
        found = [round(near, digits) for digits in (0, 3, 6, 9)] if np.isfinite(near) else []
        found += [near, float(np.nextafter(near, 0)), float(np.nextafter(near, np.inf))]
        options[name] = next((value for value in found if value and above / value == below), near)
    return options


def _seen(schedule: Schedule, reals: np.ndarray) -> dict[str, float | None]:
    """The schedule's state, as in a checkpoint."""
    words = seen_words(schedule).items()
    found = {name: float(reals[word]) for name, word in words}
    return {name: value if np.isfinite(value) else None for name, value in found.items()}
