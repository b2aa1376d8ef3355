"""Quadratic near the target, linear beyond, like torch's HuberLoss. Source: Huber 1964."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ..units import SMALLEST
from ..units.plugin import option
from .base import Loss, Shape


@dataclass(frozen=True)
class Huber(Loss):
    """d^2 / 2 if the difference |d| < delta, else delta * (|d| - delta / 2)."""

    name: ClassVar[str] = "huber"

    delta: float = option(1.0, "difference beyond which the loss is linear", "D", least=SMALLEST)

    @property
    def kernel(self) -> str:
        return "huber"

    def numbers(self, shape: Shape) -> dict[str, Any]:
        return super().numbers(shape) | {"p": self.delta}
