"""Binary cross-entropy of logits, as torch's BCEWithLogitsLoss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .base import Loss, Shape


@dataclass(frozen=True)
class BCEWithLogits(Loss):
    """Targets are probabilities, in the output's shape."""

    name: ClassVar[str] = "bce_with_logits"
    absorbs: ClassVar[tuple[str, ...]] = ("sigmoid",)

    @property
    def kernel(self) -> str:
        return "bce"

    def sample(self, shape: Shape, draw: np.random.Generator) -> np.ndarray:
        return draw.random(shape, np.float32)
