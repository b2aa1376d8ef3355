"""x^y in float32, computed in float64: at most 1 ulp, with all of C's special cases."""

import numpy as np

from .inlining import inline
from .mathf import INF, MAGIC64, NAN, ONE, ZERO, copysign, fabs, floor, log
from .number import I32, I64, fma, lanewise, like, of

LN2 = 0.6931471805599453
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD


def _bits(builder, value):
    return builder.bitcast(value, of(value, I64))


def _exponent(builder, x):
    bits = _bits(builder, x)
    bits = builder.sub(bits, like(bits, SQRT_HALF_BITS))
    k = builder.trunc(builder.ashr(bits, like(bits, 52)), of(x, I32))
    return builder.sitofp(k, x.type)


def _mantissa(builder, x):
    bits = _bits(builder, x)
    k = builder.sub(bits, like(bits, SQRT_HALF_BITS))
    k = builder.and_(k, like(bits, -(1 << 52)))
    return builder.bitcast(builder.sub(bits, k), x.type)


def _power(builder, magic_sum):
    n = _bits(builder, magic_sum)
    bits = builder.shl(builder.add(n, like(n, 1023)), like(n, 52))
    return builder.bitcast(bits, magic_sum.type)


# x normal, positive -> the k for which x * 2^-k is in [sqrt(1/2), sqrt(2)), and that number
_exponent64, _mantissa64 = lanewise(1, _exponent), lanewise(1, _mantissa)
# 2^n for the n in a sum with MAGIC64; |n| < 1023
_power_of_two64 = lanewise(1, _power)


@inline
def log2_wide(x):
    """log2 of a positive finite float64 in float32's range; relative error below 1e-11."""
    m = _mantissa64(x)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = fma(z, 1.0 / 15.0, 1.0 / 13.0)
    p = fma(p, z, 1.0 / 11.0)
    p = fma(p, z, 1.0 / 9.0)
    p = fma(p, z, 1.0 / 7.0)
    p = fma(p, z, 1.0 / 5.0)
    p = fma(p, z, 1.0 / 3.0)
    p = fma(p * z, s, s)
    return fma(p, 2.0 / LN2, _exponent64(x))


@inline
def exp2_wide(x):
    """2^x in float64 for |x| <= 1000; relative error below 1e-10."""
    shifted = x + MAGIC64
    r = (x - (shifted - MAGIC64)) * LN2
    p = fma(r, 1.0 / 362880.0, 1.0 / 40320.0)
    p = fma(p, r, 1.0 / 5040.0)
    p = fma(p, r, 1.0 / 720.0)
    p = fma(p, r, 1.0 / 120.0)
    p = fma(p, r, 1.0 / 24.0)
    p = fma(p, r, 1.0 / 6.0)
    p = fma(p, r, 0.5)
    p = fma(p, r, 1.0)
    p = fma(p, r, 1.0)
    return p * _power_of_two64(shifted)


HALF = np.float32(0.5)


@inline
def power(x, y):
    """x^y like C's powf; at most 1 ulp."""
    size = fabs(x)
    is_integer = floor(y) == y
    odd = is_integer and floor(y * HALF) != y * HALF
    wide = np.float64(size)
    t = np.float64(y) * log2_wide(wide)
    t = 200.0 if t > 200.0 else t
    t = -200.0 if t < -200.0 else t
    value = np.float32(exp2_wide(t))
    up = y > ZERO
    value = (ZERO if up else INF) if size == ZERO else value
    value = (INF if up else ZERO) if size == INF else value
    if fabs(y) == INF:
        value = INF if (size > ONE) == up else ZERO
        value = ONE if size == ONE else value
    value = -value if odd and copysign(ONE, x) < ZERO else value
    value = NAN if x < ZERO and not is_integer and size != INF else value
    value = NAN if x != x or y != y else value
    return ONE if x == ONE or y == ZERO else value


@inline
def power_dx(x, y):
    """The derivative y * x^(y - 1); 0 if y is 0."""
    return ZERO if y == ZERO else y * power(x, y - ONE)


@inline
def power_dy(x, y):
    """The derivative x^y * log x; 0 if x is 0 and y >= 0, as in torch."""
    slope = power(x, y) * log(x)
    return ZERO if x == ZERO and y >= ZERO else slope
