"""What is minimised. A new loss is a file with a frozen dataclass, imported here.

A loss is attached to the model's output when it is compiled, never taken from the file.
"""

from .base import Loss
from .bce_with_logits import BCEWithLogits
from .cross_entropy import CrossEntropy
from .huber import Huber
from .l1 import L1
from .mse import MSE
from .output import Output

LOSSES: dict[str, type[Loss]] = Loss.kinds

__all__ = ["L1", "LOSSES", "MSE", "BCEWithLogits", "CrossEntropy", "Huber", "Loss", "Output"]
