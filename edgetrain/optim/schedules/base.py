"""What a learning-rate schedule is: kernel calls before each step, and what they remember."""

from dataclasses import dataclass
from typing import ClassVar

from ...ir import Call
from ...units.plugin import Plugin, option


@dataclass(frozen=True)
class Schedule(Plugin):
    """A factor on the optimizer's learning rate, computed by kernels from the step.

    Attributes:
      warmup_steps: the factor rises linearly over these first steps.
      total_steps: of the whole run; fixed at the first start.
      needs_total: whether the rate depends on the number of steps of the whole run.
      seen: names of the words at SEEN of the control block in which the kernels keep what they have
        seen; they begin at 0 and a checkpoint holds them.
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
        """Numbers for those instructions, at RATE in the control block; at most RATE_WORDS."""
        return ()

    def check_rates(self, lr: float) -> None:
        """Refuse a base rate that overflows at some step of the run.

        Raises:
          UsageError: names the step.
        """
