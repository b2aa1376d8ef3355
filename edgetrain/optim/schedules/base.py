"""The base class of learning-rate schedules: kernel calls before each step, and their state."""

from dataclasses import dataclass
from typing import ClassVar

from ...ir import Call
from ...units.plugin import Plugin, option


@dataclass(frozen=True)
class Schedule(Plugin):
    """A factor on the optimizer's learning rate, computed by kernels from the step.

    Attributes:
      warmup_steps: the factor rises linearly over these first steps.
      total_steps: steps of the whole run; fixed at the first start.
      needs_total: whether the rate depends on the length of the run.
      seen: names of the state words at SEEN in the control block; they start at 0 and are saved
        in checkpoints.
    """

    family: ClassVar[str] = "schedule"
    choice: ClassVar[str] = "lr_schedule"
    prefix: ClassVar[str] = "lr_"
    default: ClassVar[str] = "constant"
    needs_total: ClassVar[bool] = False
    seen: ClassVar[tuple[str, ...]] = ()

    warmup_steps: int = option(0, "steps of linear warm-up", "N", flag="warmup_steps", least=0)
    total_steps: int = option(0, "steps of the whole run", "N", flag=None, least=0)

    def calls(self) -> list[Call]:
        """Instructions that set a step's learning rate (kernels/drive/rates.py)."""
        raise NotImplementedError

    def numbers(self) -> tuple[float, ...]:
        """Operands of these instructions, at RATE in the control block; at most RATE_WORDS."""
        return ()

    def check_rates(self, lr: float) -> None:
        """Refuse a base rate that overflows at some step of the run.

        Raises:
          UsageError: names the step.
        """
