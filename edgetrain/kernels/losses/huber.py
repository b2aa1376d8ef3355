"""Huber loss: quadratic near the target, linear beyond."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import fabs
from .elementwise import elementwise

HALF = np.float32(0.5)


@inline
def huber(x, t, delta):
    """d^2 / 2 of the difference d if |d| < delta, else delta * (|d| - delta / 2)."""
    size = fabs(x - t)
    return HALF * size * size if size < delta else delta * (size - HALF * delta)


@inline
def huber_slope(x, t, delta):
    """The difference, clipped to -delta .. delta; NaN stays NaN."""
    d = x - t
    low = -delta if d < -delta else d
    return delta if d > delta else low


elementwise("huber", "Huber loss (p: delta)", huber, huber_slope, numbers=1)
