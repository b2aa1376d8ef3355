"""Binary cross-entropy of logits, optionally with a weight on positive targets."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO, exp, fabs, log1p, sigmoid
from .elementwise import elementwise

HALF = np.float32(0.5)


@inline
def binary(x, t, _):
    """-(t * log sigmoid(x) + (1 - t) * log(1 - sigmoid(x)))."""
    positive = ZERO if x < ZERO else x
    return positive - x * t + log1p(exp(-fabs(x)))


@inline
def binary_slope(x, t, _):
    """sigmoid(x) - t."""
    return sigmoid(x) - t


@inline
def weighted(x, t, weight):
    """-(weight * t * log sigmoid(x) + (1 - t) * log(1 - sigmoid(x)))."""
    both = ONE + (weight - ONE) * t
    negative = -x if x < ZERO else (x if x != x else ZERO)
    return (ONE - t) * x + both * (log1p(exp(-fabs(x))) + negative)


@inline
def weighted_slope(x, t, weight):
    """(1 - t) + (1 + (weight - 1) * t) * (sigmoid(x) - 1)."""
    return (ONE - t) - (ONE + (weight - ONE) * t) * sigmoid(-x)


@inline
def same_side(x, t):
    """Whether the logit's sign predicts t > 1/2 correctly."""
    return (x > ZERO) == (t > HALF)


elementwise("bce", "Binary cross-entropy with logits", binary, binary_slope, same_side)
elementwise(
    "bce_pos",
    "Binary cross-entropy with logits (p: weight of positive targets)",
    weighted,
    weighted_slope,
    same_side,
    numbers=1,
)
