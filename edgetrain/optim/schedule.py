"""Learning rate by step: constant, step, cosine, linear warm-up. Pure functions of the step."""

import math
from dataclasses import dataclass

from ..errors import UsageError
from ..needs import check_departures, check_types

KINDS = ("constant", "step", "cosine")
_OPTIONS = {"kind": "lr_schedule", "step_size": "lr_step_size", "gamma": "lr_gamma"}


@dataclass(frozen=True, slots=True)
class Schedule:
    """A factor on the optimizer's learning rate.

    Attributes:
      kind: constant; step (times `gamma` every `step_size`); cosine (0 from `total_steps` on).
      warmup_steps: the factor rises linearly over these first steps.
      total_steps: of the whole run; fixed at the first start.
    """

    kind: str = "constant"
    warmup_steps: int = 0
    step_size: int = 0
    gamma: float = 0.1
    total_steps: int = 0

    def __post_init__(self) -> None:
        check_types(self, "schedule")
        if self.kind not in KINDS:
            raise UsageError(f"schedule {self.kind!r}: expected one of {', '.join(KINDS)}.")
        if self.warmup_steps < 0 or (self.kind == "step" and self.step_size <= 0):
            raise UsageError(
                f"schedule {self.kind}: warmup_steps {self.warmup_steps}, step_size "
                f"{self.step_size}; expected 0 or more, and a step size above 0."
            )
        if self.total_steps < 0 or not 0 <= self.gamma < math.inf:
            raise UsageError(
                f"schedule {self.kind}: total_steps {self.total_steps}, gamma {self.gamma}; "
                "expected finite numbers of 0 or more."
            )
        check_departures(self, f"schedule {self.kind}", _OPTIONS)

    @property
    def needs_total(self) -> bool:
        """Whether the rate depends on the number of steps of the whole run."""
        return self.kind == "cosine"

    def factor(self, step: int) -> float:
        """Factor at 0-based `step`, skipped steps included."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.kind == "step":
            return self.gamma ** (step // self.step_size)
        if self.kind == "cosine":
            span = max(1, self.total_steps - self.warmup_steps)
            done = min(1.0, (step - self.warmup_steps) / span)
            return 0.5 * (1.0 + math.cos(math.pi * done))
        return 1.0
