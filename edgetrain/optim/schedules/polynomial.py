"""A power of the remaining fraction of the run, like torch's PolynomialLR."""

from dataclasses import dataclass
from typing import ClassVar

from ...units.plugin import option
from .base import Schedule
from .words import power


@dataclass(frozen=True)
class Polynomial(Schedule):
    """end + (1 - end) * left ** power, where left falls from 1 after warm-up to 0."""

    name: ClassVar[str] = "polynomial"
    needs_total: ClassVar[bool] = True

    power: int = option(1, "exponent", "N", least=1, most=64)
    end: float = option(0.0, "final lr / lr", "F", least=0, most=1)

    @staticmethod
    def factor(at, whole, rates):  # type: ignore[no-untyped-def]
        """The factor of a step after warm-up."""
        return rates[0] + (1.0 - rates[0]) * power(1.0 - at.done, whole.power)
