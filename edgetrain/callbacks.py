"""Callbacks under Keras's names: `et.callbacks.EarlyStopping(..)`.

`Callback` lists the hooks. `KeepBest` is edgetrain's own.
"""

from .runtime.training.callbacks import Callback
from .runtime.training.keras_callbacks import (
    CSVLogger,
    LambdaCallback,
    LearningRateScheduler,
    ModelCheckpoint,
    ReduceLROnPlateau,
)
from .runtime.training.monitors import EarlyStopping, KeepBest

__all__ = [
    "CSVLogger", "Callback", "EarlyStopping", "KeepBest", "LambdaCallback",
    "LearningRateScheduler", "ModelCheckpoint", "ReduceLROnPlateau",
]  # fmt: skip
