"""One rise and one fall over the whole run, like torch's OneCycleLR without momentum cycling."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import UsageError
from ...ir import Call
from ...units.plugin import option
from .base import Schedule


@dataclass(frozen=True)
class OneCycle(Schedule):
    """From 1 / `div_factor` to 1 (the optimizer's rate), then to 1 / div_factor / final_div_factor.

    It rises during the fraction `pct_start` of the run; there is no other warm-up.
    """

    name: ClassVar[str] = "one_cycle"
    needs_total: ClassVar[bool] = True

    pct_start: float = option(0.3, "fraction of the run in which lr rises", "P", least=0, most=1)
    div_factor: float = option(25.0, "initial lr = lr / D", "D", least=1)
    final_div_factor: float = option(1e4, "final lr = initial lr / D", "D", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_steps:
            raise UsageError(
                f"schedule one_cycle: warmup_steps {self.warmup_steps}: one_cycle has its own "
                "warm-up. Leave it out, and set pct_start instead."
            )

    def calls(self) -> list[Call]:
        return [Call("rate_one_cycle", {"ctl": "ctl"})]

    def numbers(self) -> tuple[float, ...]:
        first = 1 / self.div_factor
        return self.pct_start, first, first / self.final_div_factor

    @classmethod
    def options_of(
        cls, whole: Sequence[int], real: Sequence[float], steps: Sequence[int]
    ) -> dict[str, Any]:
        """Options that yield these numbers, or the closest ones."""
        rise, first, last = real
        options = {"pct_start": rise}
        for name, above, below in (("div_factor", 1.0, first), ("final_div_factor", first, last)):
            near = above / below if below else math.inf
            result = [round(near, digits) for digits in (0, 3, 6, 9)] if math.isfinite(near) else []
            result += [near, math.nextafter(near, 0), math.nextafter(near, math.inf)]
            options[name] = next((v for v in result if v and above / v == below), near)
        return options
