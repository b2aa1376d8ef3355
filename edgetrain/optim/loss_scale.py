"""Dynamic loss scaling for fp16: halve after an overflow, double after many steps without one.

Source: Micikevicius et al. 2018, section 3.2.
"""

from typing import NamedTuple

from ..formats import PRECISIONS
from ..ir import Call

MAX_SCALE = 2.0**24


class LossScale(NamedTuple):
    """How the loss scale changes; the kernel `loss_scale` updates it in the control block.

    Attributes:
      start: initial factor on the loss gradient.
      growth_interval: finite steps before it doubles.
      dynamic: False: it never changes.
    """

    start: float = 1.0
    growth_interval: int = 1000
    dynamic: bool = False

    def call(self) -> Call:
        """The instruction that updates it, last in an update."""
        moves = {"dynamic": int(self.dynamic), "interval": self.growth_interval}
        return Call("loss_scale", {"ctl": "ctl", **moves})


def loss_scale_of(precision: str, constant: float | None = None) -> LossScale:
    """The loss scale for a format of activations and gradients; dynamic unless it is 1.

    Args:
      constant: a fixed scale requested by the user.
    """
    if constant is not None:
        return LossScale(constant)
    start = PRECISIONS[precision].loss_scale
    return LossScale(start, dynamic=start != 1)
