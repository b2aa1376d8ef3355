"""Drops at chosen steps, like torch's MultiStepLR."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import UsageError
from ...ir import Call
from ...units.plugin import option
from .base import Schedule
from .step import check_growth


@dataclass(frozen=True)
class MultiStep(Schedule):
    """Multiply by `gamma` at each of `milestones`."""

    name: ClassVar[str] = "multistep"
    bundled: ClassVar[str] = "drive_drops"

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
        drops = [
            Call("rate_drop", {"ctl": "ctl", "at": milestone}) for milestone in self.milestones
        ]
        return [Call("rate_constant", {"ctl": "ctl"}), *drops]

    def numbers(self) -> tuple[float, ...]:
        return (self.gamma,)

    @classmethod
    def in_bundles(cls) -> bool:
        return True

    def whole_numbers(self) -> tuple[int, ...]:
        return (len(self.milestones),)

    def chosen_steps(self) -> tuple[int, ...]:
        return self.milestones

    @classmethod
    def options_of(
        cls, whole: Sequence[int], real: Sequence[float], steps: Sequence[int]
    ) -> dict[str, Any]:
        return {"milestones": tuple(steps[: max(0, whole[0])]), "gamma": real[0]}

    def check_rates(self, lr: float) -> None:
        drops = sum(milestone < self.total_steps for milestone in self.milestones)
        check_growth(self, lr, self.gamma, drops, "fewer milestones")
