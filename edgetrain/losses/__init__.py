"""Losses. A new loss is a file with a frozen dataclass, listed here.

A loss is attached to the model's output at compile time, never read from the file.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .base import Loss

if TYPE_CHECKING:
    from .bce_with_logits import BCEWithLogits
    from .cosine import Cosine
    from .cross_entropy import CrossEntropy
    from .focal import Focal
    from .huber import Huber
    from .l1 import L1
    from .mse import MSE
    from .output import Output
    from .quantile import Quantile

LOSSES: Mapping[str, type[Loss]] = Loss.kinds
_FILES = {
    "bce_with_logits": "bce_with_logits.BCEWithLogits",
    "cosine": "cosine.Cosine",
    "cross_entropy": "cross_entropy.CrossEntropy",
    "focal": "focal.Focal",
    "huber": "huber.Huber",
    "l1": "l1.L1",
    "mse": "mse.MSE",
    "output": "output.Output",
    "quantile": "quantile.Quantile",
}
__getattr__ = Loss.kinds.listed(__name__, _FILES)

__all__ = [
    "L1", "LOSSES", "MSE", "BCEWithLogits", "Cosine", "CrossEntropy", "Focal", "Huber", "Loss",
    "Output", "Quantile",
]  # fmt: skip
