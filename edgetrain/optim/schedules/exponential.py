"""The same factor at each step, like torch's ExponentialLR."""

from dataclasses import dataclass
from typing import ClassVar

from ...ir import Call
from ...units.plugin import option
from .base import Schedule
from .step import check_growth


@dataclass(frozen=True)
class Exponential(Schedule):
    """gamma ** step."""

    name: ClassVar[str] = "exponential"

    gamma: float = option(0.999, "factor per step", "G", least=0)

    def calls(self) -> list[Call]:
        return [Call("rate_exponential", {"ctl": "ctl"})]

    def numbers(self) -> tuple[float, ...]:
        return (self.gamma,)

    def check_rates(self, lr: float) -> None:
        check_growth(self, lr, self.gamma, max(0, self.total_steps - 1), "fewer steps")
