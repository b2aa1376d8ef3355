"""Drops at equal intervals, like torch's StepLR."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ...errors import UsageError
from ...ir import Call
from ...units import LARGEST
from ...units.plugin import option
from .base import Schedule


@dataclass(frozen=True)
class Step(Schedule):
    """Multiply by `gamma` every `step_size` steps."""

    name: ClassVar[str] = "step"

    step_size: int = option(0, "steps between drops", "N", least=1)
    gamma: float = option(0.1, "factor per drop", "G", least=0)

    def calls(self) -> list[Call]:
        return [Call("rate_step", {"ctl": "ctl", "size": self.step_size})]

    def numbers(self) -> tuple[float, ...]:
        return (self.gamma,)

    def check_rates(self, lr: float) -> None:
        drops = max(0, self.total_steps - 1) // self.step_size
        check_growth(self, lr, self.gamma, drops, "a larger step_size")


def check_growth(schedule: Schedule, lr: float, gamma: float, drops: int, other: str) -> None:
    """Reject a gamma above 1 that makes the rate infinite after `drops` drops.

    Args:
      other: another remedy, for the message.

    Raises:
      UsageError: names the step.
    """
    last = max(0, schedule.total_steps - 1)  # rates only grow
    if gamma <= 1 or lr == 0 or last < schedule.warmup_steps:
        return
    if math.log(lr) + drops * math.log(gamma) > math.log(LARGEST):
        raise UsageError(
            f"schedule {schedule.name}: gamma {gamma:g} makes the learning rate {lr:g} infinite by "
            f"step {last + 1}. Choose a gamma of at most 1, or {other}."
        )
