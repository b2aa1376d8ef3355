"""Quantities that depend on the number of an update, 1 for the first, for use in `per_step`."""

import numpy as np

from .. import control
from ..language.inlining import inline
from ..language.power import exp2_wide, log2_wide
from ..language.prim import ld_i64, to_real

_LEAST = 2.0**-60  # least base whose logarithm is taken


@inline
def power(ctl, base):
    """base ** t in float64, for a base from 0 to 1."""
    return exp2_wide(to_real(ld_i64(ctl, control.ADAM_T)) * log2_wide(max(base, _LEAST)))


@inline
def bias(ctl, complement):
    """1 - decay ** t, the total weight of a moving mean's values. `complement` is 1 - decay, which
    float32 holds more precisely than a decay near 1."""
    return 1.0 - power(ctl, 1.0 - np.float64(complement))


@inline
def is_first(ctl):
    """Whether this is the first update."""
    return ld_i64(ctl, control.ADAM_T) == 1
