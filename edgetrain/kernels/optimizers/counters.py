"""What follows from the number of an update, 1 at first: words for `per_step` of an arithmetic."""

import numpy as np

from .. import control
from ..language.inlining import inline
from ..language.power import exp2_wide, log2_wide
from ..language.prim import ld_i64, to_real

_LEAST = 2.0**-60  # of a decay whose logarithm is taken


@inline
def power(ctl, base):
    """base ** t in float64, of a base from 0 to 1."""
    return exp2_wide(to_real(ld_i64(ctl, control.ADAM_T)) * log2_wide(max(base, _LEAST)))


@inline
def bias(ctl, complement):
    """1 - decay ** t, what a moving mean has of its values; from 1 - decay, which float32 has more
    of than of a decay near 1."""
    return 1.0 - power(ctl, 1.0 - np.float64(complement))


@inline
def is_first(ctl):
    """Whether there was no update before."""
    return ld_i64(ctl, control.ADAM_T) == 1
