"""Binary cross-entropy of logits, like torch's BCEWithLogitsLoss."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..units.plugin import option
from .base import Loss, Shape, within_one

if TYPE_CHECKING:  # parsers use losses without numpy
    import numpy as np


@dataclass(frozen=True)
class BCEWithLogits(Loss):
    """Targets are probabilities in the output's shape; the loss is the mean over all of them."""

    name: ClassVar[str] = "bce_with_logits"
    absorbs: ClassVar[tuple[str, ...]] = ("sigmoid",)

    pos_weight: float = option(1.0, "weight of positive targets", "W", least=0)

    @property
    def kernel(self) -> str:
        return "bce" if self.pos_weight == 1 else "bce_pos"

    def is_binary(self, shape: Shape) -> bool:
        return True

    def doubt(self, output: "np.ndarray") -> str:
        if not within_one(output):
            return ""
        return (
            "the output is between 0 and 1, like probabilities, but bce_with_logits expects "
            "logits. Train the output before the sigmoid (--output)."
        )

    def numbers(self, shape: Shape) -> dict[str, Any]:
        own = {} if self.pos_weight == 1 else {"p": self.pos_weight}
        return super().numbers(shape) | own

    def sample(self, shape: Shape, draw: "np.random.Generator") -> "np.ndarray":
        return draw.random(shape, "float32")
