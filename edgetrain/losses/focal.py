"""Focal loss of logits, for rare positives. Source: Lin et al. 2017, "Focal Loss", section 3."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..units.plugin import option
from .base import Loss, Shape

if TYPE_CHECKING:  # parsers use losses without numpy
    import numpy as np


@dataclass(frozen=True)
class Focal(Loss):
    """Binary cross-entropy times a_t * (1 - p_t)^focal_gamma; targets are 0 or 1.

    a_t is focal_alpha for positive targets and 1 - focal_alpha for others; p_t is the probability
    of the target. Targets have the output's shape; the mean is over all of them.
    """

    name: ClassVar[str] = "focal"
    absorbs: ClassVar[tuple[str, ...]] = ("sigmoid",)

    focal_alpha: float = option(0.25, "weight of positive targets", "A", least=0, most=1)
    focal_gamma: float = option(2.0, "how strongly easy targets are down-weighted", "G", least=0)

    @property
    def kernel(self) -> str:
        return "focal"

    def is_binary(self, shape: Shape) -> bool:
        return True

    def numbers(self, shape: Shape) -> dict[str, Any]:
        return super().numbers(shape) | {"p": self.focal_alpha, "q": self.focal_gamma}

    def sample(self, shape: Shape, draw: "np.random.Generator") -> "np.ndarray":
        return draw.integers(0, 2, shape).astype("float32")
