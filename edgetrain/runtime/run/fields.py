"""Checks the JSON of a run's checkpoint; unknown fields are refused."""

from typing import Any

from ...errors import CheckpointError
from ...optim import SCHEDULES
from ...optim.loss_scale import MAX_SCALE
from ...program.schema import (
    boolean,
    by_name,
    integer,
    number,
    optional,
    plain,
    record,
    row,
    several,
    text,
    verify,
)
from ..loading.plugin_fields import member_of
from .checkpoint import Loaded

_COUNT = integer(0, 2**62)


def _sum(value: Any, name: str) -> None:
    """A number or null: a non-finite number is no reason to refuse the whole state."""
    if type(value) is not float:
        optional(number())(value, name)


_EXPONENT = integer(-64, 64)
COUNTERS = record(
    {
        "updates": _COUNT,
        "good_steps": _COUNT,
        "bad_steps": _COUNT,
        "loss_scale": number(1, MAX_SCALE),
        "bias1": number(0, 1),
        "bias2": number(0, 1),
    },
    {"state_exponent": _EXPONENT, "next_exponent": _EXPONENT},  # missing in older builds
)
# Fields that older builds didn't write.
_LATER = {
    "started_lr": number(0),
    "keep_last": boolean,
    "position": record(
        {
            "epoch": _COUNT,
            "done": _COUNT,
            "ended": boolean,
            "loss": _sum,
            "counted": _COUNT,
        },
        {"skipped": _COUNT},
    ),
    "changed": record(
        {},
        {
            "max_grad_norm": number(0),
            "loss_scale": number(1, MAX_SCALE),
            "loss_weights": by_name(number(0)),
        },
    ),
    "diverged": boolean,
    "failed": several(_COUNT, most=1000),
    "callbacks": several(row(text(256), plain(8)), most=1000),
    "labels": optional(several(text(1024), most=2**20)),
    "lengths": by_name(_COUNT),
}


def _run(seen: tuple[str, ...]):
    """Fields of a run whose schedule has the state `seen`."""
    seen = (*seen, "last_loss") if seen else ()
    return record(
        {
            "step": _COUNT,
            "total_steps": _COUNT,
            "lr": number(0),
            "counters": COUNTERS,
            "schedule": member_of(SCHEDULES),
            "seen": record({name: optional(number()) for name in seen}),
            "recipe": text(64),
            "samples": _COUNT,
            "held_out": _COUNT,
        },
        _LATER,
    )


def check_run(loaded: Loaded) -> Loaded:
    """Check the fields of a run's checkpoint.

    Raises:
      CheckpointError: a field is missing, unknown or invalid.
    """
    label, move = str(loaded.used), "Remove it to use an older one."
    schedule = loaded.meta.get("schedule")
    name = schedule.get("name") if isinstance(schedule, dict) else None
    seen = SCHEDULES[name].seen if isinstance(name, str) and name in SCHEDULES else ()
    verify(_run(seen), loaded.meta, label, CheckpointError, move)
    return loaded


def check_best(loaded: Loaded, recipe: str) -> Loaded:
    """Check the fields of a best state; older files have only the step.

    Args:
      recipe: digest of the run's Program.
    Raises:
      CheckpointError: it belongs to another Program, or a field is invalid.
    """
    meta = loaded.meta
    if not isinstance(meta.get("step"), int) or not isinstance(meta.get("counters", {}), dict):
        raise CheckpointError(
            f"{loaded.used}: not the best state of a run. Train with --keep-best (KeepBest)."
        )
    if meta.get("recipe", recipe) != recipe:
        raise CheckpointError(
            f"{loaded.used}: the best state of a run with another model or other compile options. "
            "Remove it, and train with --keep-best (KeepBest)."
        )
    return loaded
