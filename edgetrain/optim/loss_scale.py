"""Dynamic loss scaling for fp16: back off when a gradient overflows, grow when none has for long.

Source: Micikevicius et al. 2018, section 3.2.
"""

from dataclasses import dataclass, replace

MAX_SCALE = 2.0**24


@dataclass(frozen=True, slots=True)
class LossScale:
    """State between steps; `update` returns the next one.

    Attributes:
      scale: what the loss gradient is multiplied by; 1 and fixed for fp32.
      good_steps: finite steps since the scale last changed.
      bad_steps: steps in a row without an update.
    """

    scale: float = 1.0
    growth_interval: int = 1000
    good_steps: int = 0
    bad_steps: int = 0
    dynamic: bool = False

    @classmethod
    def for_precision(cls, precision: str) -> "LossScale":
        """fp16 starts at 2^12 and moves, fp32 stays at 1."""
        return cls(2.0**12, dynamic=True) if precision == "fp16" else cls()

    def update(self, finite: bool, counted: bool = True) -> "LossScale":
        """After a step.

        Args:
          finite: its gradients were.
          counted: it had targets; one without tells nothing about the scale.
        """
        if not finite:
            scale = max(1.0, self.scale / 2) if self.dynamic else self.scale
            return replace(self, scale=scale, good_steps=0, bad_steps=self.bad_steps + 1)
        if not counted:
            return replace(self, bad_steps=self.bad_steps + 1)
        if self.dynamic and self.good_steps + 1 >= self.growth_interval:
            return replace(self, scale=min(MAX_SCALE, self.scale * 2), good_steps=0, bad_steps=0)
        return replace(self, good_steps=self.good_steps + 1, bad_steps=0)
