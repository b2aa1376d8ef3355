"""Learning rate by step: constant, step, cosine, linear warm-up. Pure functions of the step."""

import math
from dataclasses import dataclass

from ..errors import UsageError
from ..ir import Call
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

    def call(self) -> Call:
        """The instruction that sets the rate of a step, before it (kernels/drive/rates.py)."""
        own = {"size": self.step_size} if self.kind == "step" else {}
        return Call(f"rate_{self.kind}", {"ctl": "ctl", **own})

    def numbers(self) -> tuple[float, ...]:
        """What the kernel finds at RATE of the control block."""
        return (self.gamma,) if self.kind == "step" else ()

    def check_rates(self, lr: float) -> None:
        """Refuse a base rate that some step of the run would multiply beyond what is finite.

        Raises:
          UsageError: names the step; only a `gamma` above 1 can do it.
        """
        last = max(0, self.total_steps - 1)  # rates only grow
        if self.kind != "step" or self.gamma <= 1 or lr == 0 or last < self.warmup_steps:
            return
        if math.log(lr) + last // self.step_size * math.log(self.gamma) > math.log(LARGEST):
            raise UsageError(
                f"schedule {self.kind}: gamma {self.gamma:g} makes the learning rate {lr:g} "
                f"infinite by step {last + 1}. Choose a gamma of at most 1, or a larger step_size."
            )
