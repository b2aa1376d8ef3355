"""Optimizers as init/update pairs over values, learning-rate schedules, loss scaling.

A new optimizer is a file with a frozen dataclass, listed here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .base import Optimizer
from .loss_scale import LossScale, loss_scale_of
from .schedules import SCHEDULES, Schedule

if TYPE_CHECKING:
    from .adafactor import Adafactor
    from .adagrad import Adagrad
    from .adam import Adam, AdamW
    from .adan import Adan
    from .lamb import Lamb
    from .lion import Lion
    from .rmsprop import RMSprop
    from .sgd import SGD

OPTIMIZERS: Mapping[str, type[Optimizer]] = Optimizer.kinds
_FILES = {
    "adafactor": "adafactor.Adafactor",
    "adagrad": "adagrad.Adagrad",
    "adam": "adam.Adam",
    "adamw": "adam.AdamW",
    "adan": "adan.Adan",
    "lamb": "lamb.Lamb",
    "lion": "lion.Lion",
    "rmsprop": "rmsprop.RMSprop",
    "sgd": "sgd.SGD",
}
__getattr__ = Optimizer.kinds.listed(__name__, _FILES)


def make_optimizer(name: str, **options: Any) -> Optimizer:
    """Make an optimizer from its name and options.

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
    "Adan",
    "Lamb",
    "Lion",
    "LossScale",
    "Optimizer",
    "RMSprop",
    "Schedule",
    "loss_scale_of",
    "make_optimizer",
]
