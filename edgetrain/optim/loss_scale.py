"""Dynamic loss scaling for fp16: back off when a gradient overflows, grow when none has for long.

Source: Micikevicius et al. 2018, section 3.2.
"""

from typing import NamedTuple

from ..formats import PRECISIONS
from ..ir import Call

MAX_SCALE = 2.0**24


class LossScale(NamedTuple):
    """How the scale moves; the kernel `loss_scale` moves it, in the control block.

    Attributes:
      start: what the loss gradient is multiplied by at first.
      growth_interval: finite steps after which it doubles.
      dynamic: False: it stays.
    """

    start: float = 1.0
    growth_interval: int = 1000
    dynamic: bool = False

    def call(self) -> Call:
        """The last instruction of an update."""
        moves = {"dynamic": int(self.dynamic), "interval": self.growth_interval}
        return Call("loss_scale", {"ctl": "ctl", **moves})


def loss_scale_of(precision: str, constant: float | None = None) -> LossScale:
    """What the format of activations and gradients needs: 1 stays, others move.

    Args:
      constant: a scale that was asked for; it stays.
    """
    if constant is not None:
        return LossScale(constant)
    start = PRECISIONS[precision].loss_scale
    return LossScale(start, dynamic=start != 1)
