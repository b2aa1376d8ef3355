"""Mean absolute error, like torch's L1Loss."""

from dataclasses import dataclass
from typing import ClassVar

from .base import Loss


@dataclass(frozen=True)
class L1(Loss):
    """|output - target|; the slope at 0 is 0."""

    name: ClassVar[str] = "l1"

    @property
    def kernel(self) -> str:
        return "l1"
