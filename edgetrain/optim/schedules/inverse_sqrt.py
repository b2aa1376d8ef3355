"""The inverse of the step's square root. Source: Vaswani et al. 2017, section 5.3."""

from dataclasses import dataclass
from typing import ClassVar

from ...ir import Call
from ...units.plugin import option
from .base import Schedule

LONG = 10_000


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """sqrt(timescale / (timescale + steps since warm-up)).

    Attributes:
      timescale: in steps; 0: the warm-up steps, or LONG without warm-up.
    """

    name: ClassVar[str] = "inverse_sqrt"

    timescale: int = option(0, "steps before the decay; 0: as warm-up, or 10000", "N", least=0)

    def calls(self) -> list[Call]:
        scale = self.timescale or self.warmup_steps or LONG
        return [Call("rate_inverse_sqrt", {"ctl": "ctl", "scale": scale})]
