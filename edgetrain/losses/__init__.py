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
    from .ctc import CTC
    from .dice import Dice
    from .focal import Focal
    from .huber import Huber
    from .info_nce import InfoNCE
    from .l1 import L1
    from .mse import MSE
    from .output import Output
    from .quantile import Quantile
    from .triplet import Triplet

LOSSES: Mapping[str, type[Loss]] = Loss.kinds
_FILES = {
    "bce_with_logits": "bce_with_logits.BCEWithLogits",
    "cosine": "cosine.Cosine",
    "cross_entropy": "cross_entropy.CrossEntropy",
    "ctc": "ctc.CTC",
    "dice": "dice.Dice",
    "focal": "focal.Focal",
    "huber": "huber.Huber",
    "info_nce": "info_nce.InfoNCE",
    "l1": "l1.L1",
    "mse": "mse.MSE",
    "output": "output.Output",
    "quantile": "quantile.Quantile",
    "triplet": "triplet.Triplet",
}
__getattr__ = Loss.kinds.listed(__name__, _FILES)

__all__ = [
    "CTC", "L1", "LOSSES", "MSE", "BCEWithLogits", "Cosine", "CrossEntropy", "Dice", "Focal",
    "Huber", "InfoNCE", "Loss", "Output", "Quantile", "Triplet",
]  # fmt: skip
