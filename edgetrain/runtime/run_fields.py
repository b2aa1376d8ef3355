"""What the JSON of a run's checkpoint may say; fields that are not listed are refused."""

from ..errors import CheckpointError, UsageError
from ..optim.loss_scale import MAX_SCALE
from ..optim.schedule import KINDS, Schedule
from ..program.schema import integer, number, one_of, record, text, verify
from .checkpoint import Loaded

_COUNT = integer(0, 2**62)

RUN = record({
    "step": _COUNT,
    "total_steps": _COUNT,
    "lr": number(0),
    "counters": record({
        "updates": _COUNT,
        "good_steps": _COUNT,
        "bad_steps": _COUNT,
        "loss_scale": number(1, MAX_SCALE),
        "bias1": number(0, 1),
        "bias2": number(0, 1),
    }),
    "schedule": record({
        "kind": one_of(*KINDS),
        "warmup_steps": _COUNT,
        "step_size": _COUNT,
        "gamma": number(0),
        "total_steps": _COUNT,
    }),
    "recipe": text(64),
    "samples": integer(1, 2**62),
    "held_out": _COUNT,
})  # fmt: skip


def check_run(loaded: Loaded) -> Loaded:
    """The checkpoint of a run, its fields proved.

    Raises:
      CheckpointError: a field is missing, unknown, or not what training writes.
    """
    label, move = str(loaded.used), "Remove it, so that an older one is used."
    verify(RUN, loaded.meta, label, CheckpointError, move)
    try:
        Schedule(**loaded.meta["schedule"])
    except UsageError as reason:
        raise CheckpointError(f"{label}: schedule: {reason} {move}") from None
    return loaded
