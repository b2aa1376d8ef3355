"""Drops at chosen steps, like torch's MultiStepLR."""

from dataclasses import dataclass
from typing import ClassVar

from ...errors import UsageError
from ...ir import Call
from ...units.plugin import option
from .base import Schedule
from .step import check_growth


@dataclass(frozen=True)
class MultiStep(Schedule):
    """Multiply by `gamma` at each of `milestones`."""

    name: ClassVar[str] = "multistep"

    milestones: tuple[int, ...] = option(
        (), "steps when lr drops, such as 300,450", "N,..", least=1
    )
    gamma: float = option(0.1, "factor per drop", "G", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.milestones or list(self.milestones) != sorted({*self.milestones}):
            raise UsageError(
                f"schedule multistep: milestones {list(self.milestones)}: expected increasing "
                "steps, at least one."
            )

    def calls(self) -> list[Call]:
        drops = [Call("rate_drop", {"ctl": "ctl", "at": at}) for at in self.milestones]
        return [Call("rate_constant", {"ctl": "ctl"}), *drops]

    def numbers(self) -> tuple[float, ...]:
        return (self.gamma,)

    def check_rates(self, lr: float) -> None:
        drops = sum(at < self.total_steps for at in self.milestones)
        check_growth(self, lr, self.gamma, drops, "fewer milestones")
