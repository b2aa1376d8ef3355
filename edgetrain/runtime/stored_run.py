"""The state that a bundle keeps as a checkpoint of a run, and what a run leaves for a bundle."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, UsageError
from ..kernels import control
from ..kernels.device import layout as device
from ..optim import Schedule, loss_scale_of
from ..optim.schedules import Step
from ..program import Program
from ..program.stored import read_stored
from .checkpoint import Loaded

SCHEDULES = ("constant", "step", "cosine")  # those of bundles, by number


def stored_checkpoint(
    path: str | os.PathLike[str],
    program: Program,
    samples: int,
    held_out: int,
    keep_last: bool = False,
) -> Loaded:
    """A stored state as a checkpoint of a run on so many samples.

    Raises:
      CheckpointError: as in `read_stored`.
    """
    found = read_stored(path, program)
    block, reals = found.block, found.block.view(np.float64)
    total = int(block[control.TOTAL_STEPS])
    schedule = _schedule(block, str(path))
    counters: dict[str, Any] = {key: int(block[word]) for key, word in control.SAVED.items()}
    counters |= {key: float(reals[word]) for key, word in control.SAVED_REALS.items()}
    if not found.exact:
        counters["loss_scale"] = loss_scale_of(program.recipe["precision"]).start
    meta = {
        "step": int(block[control.STEP]),
        "total_steps": total,
        "counters": counters,
        "lr": float(reals[control.BASE_LR]),
        "schedule": schedule.to_json(),
        "seen": {},
        "recipe": program.digest(),
        "samples": samples,
        "held_out": held_out,
        "keep_last": keep_last,
    }
    said = f"{path}: written by a net that was compiled otherwise; its values go on, not its bits."
    return Loaded(found.tensors, meta, Path(path), None if found.exact else said)


def keep_schedule(block: np.ndarray, schedule: Schedule) -> None:
    """Leave in a control block which schedule it is, for a bundle that goes on with it.

    Raises:
      UsageError: bundles have no such schedule.
    """
    if schedule.name not in SCHEDULES:
        raise UsageError(
            f"schedule {schedule.name}: bundles have {', '.join(SCHEDULES)} alone. Train with one "
            "of these."
        )
    first = control.RATE + device.SAVED_RATE
    size = schedule.step_size if isinstance(schedule, Step) else 0
    block[[first, first + 1]] = SCHEDULES.index(schedule.name), size


def _schedule(block: np.ndarray, label: str) -> Schedule:
    """The learning rate's schedule that a control block says."""
    kind, size = (int(block[control.RATE + device.SAVED_RATE + k]) for k in range(2))
    warmup, total = int(block[control.WARMUP]), int(block[control.TOTAL_STEPS])
    own: dict[str, Any] = {}
    try:
        name = SCHEDULES[kind] if 0 <= kind < len(SCHEDULES) else str(kind)
        if name == "step":
            own = {"step_size": size, "gamma": float(block.view(np.float64)[control.RATE])}
        record = {"name": name, "warmup_steps": warmup, "total_steps": total, **own}
        return Schedule.of_json(record)
    except UsageError as reason:
        raise CheckpointError(f"{label}: {reason} Take another copy of it.") from None
