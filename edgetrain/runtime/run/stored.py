"""Converts a bundle's stored state to a checkpoint, and prepares a run's state for a bundle."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CheckpointError, UsageError
from ...kernels import control
from ...kernels.device import layout as device
from ...losses.terms import terms_of_recipe
from ...optim import SCHEDULES, Schedule, loss_scale_of
from ...program import TARGET, Program
from ...program.stored import check_mapped, read_stored, write_stored
from ...units.plugin import member
from ..session import Session, seen_words
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
    if result.anew:
        said = f"{said[:-1]}; {_ANEW}."
    if program.mapped:
        said += " Frozen weights are those in this Program's file."
    return Loaded(result.tensors, meta, Path(path), None if result.exact else said)


def write_run(
    path: Path,
    session: Session,
    schedule: Schedule,
    bundled: Program,
    emit: Callable[[dict[str, Any]], None],
) -> None:
    """Write a session's state for a bundle of `bundled`.

    Args:
      emit: receives a warning if the optimizer's state starts again.
    Raises:
      CheckpointError, RunError: as in `write_stored`.
      UsageError: bundles don't support the schedule, or don't store a weight that differs.
    """
    program, block, state = session.program, session.ints.copy(), session.state()
    keep_schedule(block, schedule)
    if bundled.digest() == program.digest():
        write_stored(path, bundled, state, block)
        return
    shapes = {slot.name: slot.shape for slot in program.lasting}
    mapped = {slot.name: program.init[slot.name] for slot in program.mapped}
    values = {name: (array, shapes[name]) for name, array in (mapped | state).items()}
    try:
        check_mapped(bundled, values, "the run's")
    except CheckpointError as error:
        raise UsageError(f"save_stored: {error}") from None
    scale = loss_scale_of(bundled.recipe["precision"], bundled.recipe.get("loss_scale"))
    block.view(np.float64)[control.LOSS_SCALE] = scale.start
    block[control.GOOD_STEPS] = 0
    if not write_stored(path, bundled, state, block):
        emit({"event": "warning", "message": f"{path}: {_ANEW}."})


_ANEW = "optimizer state starts again, because the Program stores it in another form"


def _check_kind(path: Path) -> None:
    kinds = {".edge": "a Program", ".onnx": "a model", ".ckpt": "a checkpoint of a run"}
    if path.suffix in kinds:
        folder = f", such as {str(path.parent)!r}" if path.suffix == ".ckpt" else ""
        raise CheckpointError(
            f"{path}: {kinds[path.suffix]}; expected a stored state of a bundle, or a run "
            f"directory{folder}."
        )


def check_changes(
    meta: Mapping[str, Any],
    max_grad_norm: float,
    loss_weights: Mapping[str, float],
    program: Program,
) -> None:
    """Check that a bundle of `program` trains as the run, in what its state does not contain.

    Args:
      meta: the run's checkpoint metadata.
    Raises:
      UsageError: something differs.
    """
    terms = terms_of_recipe(program.recipe, TARGET)
    compiled = {term.label: float(np.float32(term.loss.weight)) for term in terms}
    changed = {name: w for name, w in loss_weights.items() if w != compiled.get(name)}
    own = program.recipe.get("max_grad_norm") or 0.0
    if np.float32(max_grad_norm) != np.float32(own):
        what = f"max_grad_norm {max_grad_norm:g}; the bundle's Program has {own:g}"
    elif changed:
        name, weight = next(iter(changed.items()))
        what = f"loss weight {name} {weight:g}; the bundle's Program has {compiled.get(name)}"
    elif meta.get("keep_last") and meta.get("samples", 0) % program.minibatch:
        raise UsageError(
            f"save_stored: keep_last: {meta['samples']} samples leave a partial minibatch, which "
            "bundles don't train on, so the order of samples would differ. Leave keep_last out."
        )
    else:
        return
    raise UsageError(f"save_stored: {what}; a state does not contain it. Compile with this value.")


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
