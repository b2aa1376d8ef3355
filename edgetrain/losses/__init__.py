"""What is minimised. A new loss is a file with a frozen dataclass, imported here.

A loss is attached to the model's output when it is compiled, never taken from the file.
"""

from .base import Loss
from .bce_with_logits import BCEWithLogits
from .cross_entropy import CrossEntropy
from .mse import MSE

LOSSES: dict[str, type[Loss]] = Loss.kinds

__all__ = ["LOSSES", "MSE", "BCEWithLogits", "CrossEntropy", "Loss"]
