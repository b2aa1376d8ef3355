"""The divisor of a sum of losses, and means."""

from .. import control
from .inlining import inline
from .prim import ld_f64, ld_i64, st_f64, st_i64, to_real

_NAN = 0x7FF8000000000000


@inline
def divisor(ctl):
    """float64: WEIGHT, the sum of the targets' weights; if it is 0, the number of targets (or 1).

    Losses without weights leave WEIGHT at 0.
    """
    weight = ld_f64(ctl, control.WEIGHT)
    return weight if weight != 0.0 else to_real(max(ld_i64(ctl, control.TARGETS), 1))


@inline
def store_mean(to, index, total, weight, count):
    """Store total / weight at float64 [index] of `to`; NaN if nothing was counted."""
    if count != 0:
        st_f64(to, index, total / weight)
    else:
        st_i64(to, index, _NAN)  # its bits: the result of 0 / 0 differs between processors
