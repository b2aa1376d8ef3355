"""Losses of the difference between output and target: its square, its absolute value."""

import numpy as np

from ..language.inlining import inline
from ..language.mathf import ONE, ZERO, fabs
from .elementwise import elementwise

TWO = np.float32(2)


@inline
def square(x, t, _):
    return (x - t) * (x - t)


@inline
def square_slope(x, t, _):
    return TWO * (x - t)


@inline
def absolute(x, t, _):
    return fabs(x - t)


@inline
def absolute_slope(x, t, _):
    d = x - t
    slope = ONE if d > ZERO else (-ONE if d < ZERO else d)  # d: 0 stays 0, NaN stays NaN
    return slope


elementwise("mse", "Squared difference", square, square_slope)
elementwise("l1", "Absolute difference", absolute, absolute_slope)
