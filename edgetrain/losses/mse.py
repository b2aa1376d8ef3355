"""Mean squared error, like torch's MSELoss."""

from dataclasses import dataclass
from typing import ClassVar

from .base import Loss


@dataclass(frozen=True)
class MSE(Loss):
    """(output - target)^2."""

    name: ClassVar[str] = "mse"

    @property
    def kernel(self) -> str:
        return "mse"
