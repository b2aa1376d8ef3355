"""Optimizers as init/update pairs over values, learning-rate schedules, loss scaling.

A new optimizer is a file with a frozen dataclass, imported here.
"""

from typing import Any

from .adafactor import Adafactor
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .base import Optimizer
from .lion import Lion
from .loss_scale import LossScale, loss_scale_of
from .rmsprop import RMSprop
from .schedules import SCHEDULES, Schedule
from .sgd import SGD

OPTIMIZERS: dict[str, type[Optimizer]] = Optimizer.kinds


def make_optimizer(name: str, **options: Any) -> Optimizer:
    """An optimizer by name; options it does not know are an error.

    Raises:
      UsageError: no such optimizer, or an option out of range.
    """
    return Optimizer.of_json({"name": name, **options})


__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "SGD",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Lion",
    "LossScale",
    "Optimizer",
    "RMSprop",
    "Schedule",
    "loss_scale_of",
    "make_optimizer",
]
