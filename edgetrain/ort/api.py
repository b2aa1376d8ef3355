"""The names of `onnxruntime.training.api`."""

from .module import Module
from .optimizer import LinearLRScheduler, Optimizer
from .state import CheckpointState

__all__ = ["CheckpointState", "LinearLRScheduler", "Module", "Optimizer"]
