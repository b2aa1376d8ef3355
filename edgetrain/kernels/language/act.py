"""What convolutions and batch-norm kernels share: folded normalisation and activations.

Codes of the integer `act`: 0 none, 1 relu, 2 clip(lo, hi), 3 hardswish, 4 sigmoid, 5 silu,
6 leaky relu with slope lo. Every kernel that recomputes act(gamma * (x - mean) * invstd + beta)
evaluates fma(x, a, b) with the same a and b, so that all of them see the same bits.
"""

import numpy as np

from .inlining import inline
from .mathf import sigmoid
from .number import alike, fma, where
from .prim import FP32

NONE, RELU, CLIP, HARDSWISH, SIGMOID, SILU, LEAKY = range(7)

ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)
THREE, THIRD, SIXTH = np.float32(3), np.float32(1 / 3), np.float32(1 / 6)
_ld = FP32.ld


@inline
def _clipped(z, lo, hi):
    return where(z < lo, lo, where(z > hi, hi, z))


@inline
def act_value(code, z, lo, hi):
    """Activation of z, a float32 or a vector of them; lo and hi are float32. NaN stays NaN."""
    if code == NONE:
        return z
    if code == RELU:
        return where(z <= ZERO, ZERO, z)
    if code == CLIP:
        return _clipped(z, lo, hi)
    if code == HARDSWISH:
        return z * _clipped(fma(z, SIXTH, HALF), ZERO, ONE)
    if code == SIGMOID:
        return sigmoid(z)
    if code == SILU:
        return z * sigmoid(z)
    return where(z > ZERO, z, z * lo)


@inline
def act_slope(code, z, lo, hi):
    """Derivative of `act_value` at z; where it jumps, what torch takes."""
    if code == NONE:
        return alike(z, ONE)
    if code == RELU:
        return where(z <= ZERO, ZERO, ONE)
    if code == CLIP:
        return where(z <= lo, ZERO, where(z >= hi, ZERO, ONE))
    if code == HARDSWISH:
        return where(z <= -THREE, ZERO, where(z >= THREE, ONE, fma(z, THIRD, HALF)))
    if code == SIGMOID:
        s = sigmoid(z)
        return s * (ONE - s)
    if code == SILU:
        s = sigmoid(z)
        return s * fma(z, ONE - s, ONE)
    return where(z > ZERO, ONE, lo)


@inline
def norm_scale(stat, gamma, ch, c):
    """a of z = fma(x, a, b) for channel `ch` of `c`; an absent gamma (address 0) is 1."""
    invstd = _ld(stat, c + ch)
    return invstd * _ld(gamma, ch) if gamma != 0 else invstd


@inline
def norm_shift(stat, gamma, beta, ch, c):
    """b of z = fma(x, a, b); an absent beta is 0."""
    shift = _ld(beta, ch) if beta != 0 else ZERO
    return fma(-_ld(stat, ch), norm_scale(stat, gamma, ch, c), shift)


@inline
def norm_line(k, ch):
    """(a, b) of z = fma(x, a, b) for channel `ch` of the record's c."""
    return norm_scale(k.stat, k.gamma, ch, k.c), norm_shift(k.stat, k.gamma, k.beta, ch, k.c)
