"""Learning rate by step: constant, step, cosine, linear warm-up. Pure functions of the step."""

import math
from dataclasses import dataclass

from ..errors import UsageError
from ..units import LARGEST, finite_number, whole_number
from ..units.options import check_departures, check_types

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
        label = f"schedule {self.kind}:"
        for field in ("warmup_steps", "step_size", "total_steps"):
            least = int(self.kind == "step" and field == "step_size")
            value = whole_number(f"{label} {field}", getattr(self, field), least=least)
            object.__setattr__(self, field, value)
        gamma = finite_number(f"{label} gamma", self.gamma, least=0)
        object.__setattr__(self, "gamma", gamma)
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
            return self._grown(step // self.step_size)
        if self.kind == "cosine":
            span = max(1, self.total_steps - self.warmup_steps)
            done = min(1.0, (step - self.warmup_steps) / span)
            return 0.5 * (1.0 + math.cos(math.pi * done))
        return 1.0

    def _grown(self, drops: int) -> float:
        try:
            return self.gamma**drops
        except OverflowError:
            return math.inf

    def check_rates(self, lr: float) -> None:
        """Refuse a base rate that some step of the run would multiply beyond what is finite.

        Raises:
          UsageError: names the step; only a `gamma` above 1 can do it.
        """
        last = max(0, self.total_steps - 1)  # factors above 1 only grow
        if not lr * self.factor(last) <= LARGEST:
            raise UsageError(
                f"schedule {self.kind}: gamma {self.gamma:g} makes the learning rate {lr:g} "
                f"infinite by step {last + 1}. Choose a gamma of at most 1, or a larger step_size."
            )
