"""Converts a bundle's stored state to a checkpoint, and prepares a run's state for a bundle."""

import os
from pathlib import Path

import numpy as np

from ...errors import CheckpointError, UsageError
from ...kernels import control
from ...kernels.device import layout as device
from ...optim import SCHEDULES, Schedule, loss_scale_of
from ...program import Program
from ...program.stored import read_stored
from ...units.plugin import member
from ..session import seen_words
from .checkpoint import Loaded


def stored_checkpoint(
    path: str | os.PathLike[str],
    program: Program,
    samples: int,
    held_out: int,
    keep_last: bool = False,
) -> Loaded:
    """Convert a stored state to a checkpoint of a run with this many samples.

    Raises:
      CheckpointError: as in `read_stored`, or the file name has the suffix of another kind of file.
    """
    _check_kind(Path(path))
    result = read_stored(path, program)
    block, reals = result.block, result.block.view(np.float64)
    total = int(block[control.TOTAL_STEPS])
    schedule = _schedule(block, str(path))
    counters = control.counted(block, reals)
    if not result.exact:
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
    return Loaded(result.tensors, meta, Path(path), None if result.exact else said)


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
    whole, steps = schedule.whole_numbers(), schedule.chosen_steps()
    if not schedule.in_bundles():
        raise UsageError(
            f"schedule {schedule.name}: bundles keep three whole numbers and three others of a "
            "schedule. Use another schedule."
        )
    if len(steps) > device.DROPS:
        raise UsageError(
            f"schedule {schedule.name}: {len(steps)} milestones; bundles support at most "
            f"{device.DROPS}. Use fewer."
        )
    block[control.SEEN : control.SEEN + len(steps)] = steps
    size, *windows = (*whole, 0, 0, 0)[:3]
    first = control.RATE + device.SAVED_WINDOWS
    block[first : first + 2] = windows
    first = control.RATE + device.SAVED_RATE
    block[first : first + 2] = [*SCHEDULES].index(schedule.name), size


def _schedule(block: np.ndarray, label: str) -> Schedule:
    """The schedule stored in a control block."""
    words = block[control.RATE : control.RATE + control.RATE_WORDS]
    number, size = words[device.SAVED_RATE :].tolist()
    whole = size, *words[device.SAVED_WINDOWS : device.SAVED_RATE].tolist()
    real = words.view(np.float64)[: device.SAVED_WINDOWS].tolist()
    steps = block[control.SEEN : control.SEEN + device.DROPS].tolist()
    names = [*SCHEDULES]
    shared = {
        "warmup_steps": int(block[control.WARMUP]),
        "total_steps": int(block[control.TOTAL_STEPS]),
    }
    try:
        kind = member(Schedule, names[number] if 0 <= number < len(names) else str(number))
        return kind(**shared, **kind.options_of(whole, real, steps))
    except UsageError as reason:
        raise CheckpointError(f"{label}: {reason} Use another copy.") from None


def _seen(schedule: Schedule, reals: np.ndarray) -> dict[str, float | None]:
    """The schedule's state, as in a checkpoint."""
    words = seen_words(schedule).items()
    result = {name: float(reals[word]) for name, word in words}
    return {name: value if np.isfinite(value) else None for name, value in result.items()}
