"""Binary focal loss: cross-entropy in which easy targets have little weight."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO, sigmoid
from ..language.power import power
from .bce import binary, same_side
from .elementwise import elementwise

TWO = np.float32(2)


@inline
def _missed(x, t):
    """1 - p_t: the probability of the other class."""
    return sigmoid(x) * (ONE - t) + sigmoid(-x) * t


@inline
def focal(x, t, options):
    """a_t * (1 - p_t)^gamma * binary cross-entropy; options: alpha, gamma."""
    alpha, gamma = options
    share = alpha * t + (ONE - alpha) * (ONE - t)
    return share * power(_missed(x, t), gamma) * binary(x, t, gamma)


@inline
def focal_slope(x, t, options):
    """a_t * (m^gamma * (sigmoid(x) - t) - gamma * m^(gamma - 1) * (2t - 1) * p * (1 - p) * bce)."""
    alpha, gamma = options
    share = alpha * t + (ONE - alpha) * (ONE - t)
    missed = _missed(x, t)
    weight = power(missed, gamma)
    falls = (TWO * t - ONE) * sigmoid(x) * sigmoid(-x) * binary(x, t, gamma)
    rest = ZERO if missed == ZERO else gamma * (weight / missed) * falls
    return share * (weight * (sigmoid(x) - t) - rest)


elementwise("focal", "Focal loss (p: alpha, q: gamma)", focal, focal_slope, same_side, numbers=2)
