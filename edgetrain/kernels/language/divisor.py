"""The divisor of a sum of losses."""

from .. import control
from .inlining import inline
from .prim import ld_f64, ld_i64, to_real


@inline
def divisor(ctl):
    """float64: WEIGHT, the sum of the targets' weights; if it is 0, the number of targets (or 1).

    Losses without weights leave WEIGHT at 0.
    """
    weight = ld_f64(ctl, control.WEIGHT)
    return weight if weight != 0.0 else to_real(max(ld_i64(ctl, control.TARGETS), 1))
