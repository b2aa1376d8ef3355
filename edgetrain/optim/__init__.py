"""Optimizers as init/update pairs over values, learning-rate schedules, loss scaling.

A new optimizer is a file with a frozen dataclass and a row in OPTIMIZERS.
"""

from ..errors import UsageError
from .adam import Adam, AdamW
from .base import Optimizer
from .loss_scale import LossScale, loss_scale_of
from .schedule import Schedule
from .sgd import SGD

OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def make_optimizer(name: str, **options) -> Optimizer:
    """An optimizer by name; options it does not know are an error.

    Raises:
      UsageError: no such optimizer, or an option out of range.
    """
    if name not in OPTIMIZERS:
        raise UsageError(f"optimizer {name!r}: expected one of {', '.join(OPTIMIZERS)}.")
    try:
        return OPTIMIZERS[name](**options)
    except TypeError as error:
        raise UsageError(f"optimizer {name}: {error}.") from error


__all__ = [
    "OPTIMIZERS",
    "SGD",
    "Adam",
    "AdamW",
    "LossScale",
    "Optimizer",
    "Schedule",
    "loss_scale_of",
    "make_optimizer",
]
