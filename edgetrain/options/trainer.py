"""Settings of a Trainer that are also flags of `train`, each declared once."""

from __future__ import annotations  # types stay strings

from .option import declared, option

SAVE_SECONDS = 600.0  # if checkpoints are written per epoch, which may be long or never end


class Declared:
    """Fields of `runtime.training.settings.Settings`."""

    save_steps: int = option(
        0, "minibatches between checkpoints", "N", least=0, group="run", otherwise="one per epoch"
    )
    save_seconds: float | None = option(
        None,
        "longest time between checkpoints, 0: no limit",
        "S",
        least=0,
        group="run",
        otherwise=f"{SAVE_SECONDS:g}; 0 with --save-steps",
    )
    save_total_limit: int | None = option(2, "checkpoints to keep", "N", least=1, group="run")
    verify_saves: bool = option(
        False, "read each checkpoint back from disk before deleting an older one", group="run"
    )
    keep_last: bool = option(
        False, "also train on the last, partial minibatch of an epoch", group="data"
    )


SETTINGS = declared(Declared)
