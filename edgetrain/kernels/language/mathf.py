"""exp, log, tanh, erf, sin, pow ... in float32 without libm, so that every processor agrees.

Written without branches, so that loops over them vectorize. NaN propagates; infinities and
subnormals are handled. tests/kernels/test_mathf.py has the largest errors.
"""

import numpy as np

from .inlining import inline
from .number import I32, I64, fma, fma_always, lanewise, lanewise_of, like, llvm_function, of, where

ZERO, HALF, ONE, TWO = (np.float32(v) for v in (0, 0.5, 1, 2))
INF = np.float32(np.inf)


sqrt, fabs, floor, ceil, rint = map(llvm_function, ("sqrt", "fabs", "floor", "ceil", "rint"))


def _bits(builder, value):
    return builder.bitcast(value, of(value, I32))


def _with_sign(builder, size, sign):
    magnitude, sign = _bits(builder, size), _bits(builder, sign)
    magnitude = builder.and_(magnitude, like(magnitude, 0x7FFFFFFF))
    sign = builder.and_(sign, like(sign, 0x80000000))
    return builder.bitcast(builder.or_(magnitude, sign), size.type)


copysign = lanewise(2, _with_sign, "|size| with the sign bit of `sign`.")

# x + MAGIC rounds x to an integer, which is then in the low bits of the sum.
MAGIC = np.float32(1.5 * 2**23)
MAGIC64 = 1.5 * 2.0**52


def _power_of_two(half: int):
    """2^(n >> 1) (half 0) or 2^(n - (n >> 1)) (half 1) for the n in a sum with MAGIC."""

    def emit(builder, magic_sum):
        n = _bits(builder, magic_sum)
        n = builder.sub(n, like(n, 0x4B400000))
        low = builder.ashr(n, like(n, 1))
        n = builder.sub(n, low) if half else low
        bits = builder.shl(builder.add(n, like(n, 127)), like(n, 23))
        return builder.bitcast(bits, magic_sum.type)

    return lanewise(1, emit)


_low_scale, _high_scale = _power_of_two(0), _power_of_two(1)
LOG2E, LN2_HI, LN2_LO = (np.float32(v) for v in (1.44269504, 0.693359375, -2.12194440e-4))
EXP_MAX, EXP_MIN = np.float32(89), np.float32(-104)
_EXP = (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3)
E2, E3, E4, E5, E6 = (np.float32(v) for v in _EXP)
E7 = np.float32(1.9875691500e-4)


@inline
def exp(x):
    """e^x; at most 1 ulp. Source: Cephes expf (Moshier 1992)."""
    x = where(x > EXP_MAX, EXP_MAX, x)
    x = where(x < EXP_MIN, EXP_MIN, x)
    shifted = fma(x, LOG2E, MAGIC)
    n = shifted - MAGIC
    r = fma(n, -LN2_HI, x)
    r = fma(n, -LN2_LO, r)
    p = fma(E7, r, E6)
    p = fma(p, r, E5)
    p = fma(p, r, E4)
    p = fma(p, r, E3)
    p = fma(p, r, E2)
    p = fma(p, r * r, r) + ONE
    return p * _low_scale(shifted) * _high_scale(shifted)


_EXPM1 = tuple(np.float32(1 / v) for v in (362880, 40320, 5040, 720, 120, 24, 6, 2))
M9, M8, M7, M6, M5, M4, M3, M2 = _EXPM1


@inline
def expm1(x):
    """e^x - 1; at most 3 ulp (Taylor to x^9 below 1/2)."""
    p = fma(M9, x, M8)
    p = fma(p, x, M7)
    p = fma(p, x, M6)
    p = fma(p, x, M5)
    p = fma(p, x, M4)
    p = fma(p, x, M3)
    p = fma(p, x, M2)
    small = fma(p, x * x, x)
    return where(fabs(x) < HALF, small, exp(x) - ONE)


_ROOT_HALF = 0x3F3504F3  # bits of sqrt(1/2)


def _exponent_of(builder, x):
    bits = _bits(builder, x)
    bits = builder.sub(bits, like(bits, _ROOT_HALF))
    return builder.sitofp(builder.ashr(bits, like(bits, 23)), x.type)


def _mantissa_of(builder, x):
    bits = _bits(builder, x)
    k = builder.sub(bits, like(bits, _ROOT_HALF))
    k = builder.and_(k, like(bits, 0xFF800000))
    return builder.bitcast(builder.sub(bits, k), x.type)


# x normal, positive -> the k for which x * 2^-k is in [sqrt(1/2), sqrt(2)), and that number
_exponent, _mantissa = lanewise(1, _exponent_of), lanewise(1, _mantissa_of)

_LOG_HIGH = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1)
_LOG_LOW = (1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1)
L0, L1, L2, L3 = (np.float32(v) for v in _LOG_HIGH)
L4, L5, L6, L7 = (np.float32(v) for v in _LOG_LOW)
L8 = np.float32(3.3333331174e-1)
TINY, TWO23, TWENTY_THREE = np.float32(2.0**-126), np.float32(2.0**23), np.float32(23)
NAN = np.float32(np.nan)


@inline
def log(x):
    """Natural logarithm; at most 1 ulp. Source: Cephes logf (Moshier 1992)."""
    subnormal = x < TINY
    v = where(subnormal, x * TWO23, x)
    k = _exponent(v)
    k = where(subnormal, k - TWENTY_THREE, k)
    m = _mantissa(v) - ONE
    z = m * m
    p = fma(L0, m, L1)
    p = fma(p, m, L2)
    p = fma(p, m, L3)
    p = fma(p, m, L4)
    p = fma(p, m, L5)
    p = fma(p, m, L6)
    p = fma(p, m, L7)
    p = fma(p, m, L8)
    p = p * m * z
    p = fma(k, LN2_LO, p)
    p = fma(-HALF, z, p)
    y = fma(k, LN2_HI, m + p)
    y = where(x == INF, x, y)
    y = where(x > ZERO, y, NAN)
    return where(x == ZERO, -INF, y)


@inline
def log1p(x):
    """log(1 + x); at most 3 ulp. Source: Kahan, in the HP-15C handbook."""
    u = ONE + x
    y = log(u) * (x / (u - ONE))
    y = where(u == ONE, x, y)
    return where(u == INF, x, y)


_TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
T0, T1, T2, T3, T4 = (np.float32(v) for v in _TANH)
TANH_SMALL = np.float32(0.625)


@inline
def tanh(x):
    """Hyperbolic tangent; at most 2 ulp. Source: Cephes tanhf (Moshier 1992)."""
    size = fabs(x)
    large = copysign(ONE - TWO / (exp(size + size) + ONE), x)
    z = x * x
    p = fma(T0, z, T1)
    p = fma(p, z, T2)
    p = fma(p, z, T3)
    p = fma(p, z, T4)
    small = fma(p * z, x, x)
    y = where(size < TANH_SMALL, small, large)
    return where(x == x, y, x)


@inline
def sigmoid(x):
    """1 / (1 + e^-x); at most 3 ulp, subnormals included."""
    e = exp(-fabs(x))
    return where(x < ZERO, e, ONE) / (ONE + e)


@inline
def softplus(x):
    """log(1 + e^x); at most 3 ulp."""
    positive = where(x < ZERO, ZERO, x)
    return positive + log1p(exp(-fabs(x)))


_ERF = (
    -1.72853470e-5,
    3.83197126e-4,
    -3.88396438e-3,
    2.42546219e-2,
    -1.06777877e-1,
    -6.34846687e-1,
)
R0, R1, R2, R3, R4, R5 = (np.float32(v) for v in _ERF)
R6 = np.float32(-1.28717512e-1)
_ERF = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
S0, S1, S2, S3, S4, S5 = (np.float32(v) for v in _ERF)
ERF_SMALL = np.float32(0.927734375)


@inline
def erf(x):
    """Error function; at most 2 ulp. Source: N. Juffa, erff of the NVIDIA forums (2014)."""
    t, s = fabs(x), x * x
    r = fma(R0, t, R1)
    u = fma(R2, t, R3)
    r = fma(r, s, u)
    r = fma(r, t, R4)
    r = fma(r, t, R5)
    r = fma(r, t, R6)
    r = fma(r, t, -t)
    large = copysign(ONE - exp(r), x)
    p = fma(S0, s, S1)
    p = fma(p, s, S2)
    p = fma(p, s, S3)
    p = fma(p, s, S4)
    p = fma(p, s, S5)
    small = fma(p, x, x)
    return where(t > ERF_SMALL, large, small)


_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
A0, A1, A2, A3 = (np.float32(v) for v in _ATAN)
TAN_EIGHTH, TAN_THREE = np.float32(2**0.5 - 1), np.float32(2**0.5 + 1)  # of pi/8, of 3 pi/8
QUARTER_PI, HALF_PI = np.float32(np.pi / 4), np.float32(np.pi / 2)


@inline
def atan(x):
    """Arc tangent; at most 3 ulp. Source: Cephes atanf (Moshier 1992)."""
    size = fabs(x)
    far, near = size > TAN_THREE, size <= TAN_EIGHTH
    t = where(near, size, where(far, -ONE / size, (size - ONE) / (size + ONE)))
    offset = where(near, ZERO, where(far, HALF_PI, QUARTER_PI))
    z = t * t
    p = fma(A0, z, A1)
    p = fma(p, z, A2)
    p = fma(p, z, A3)
    y = copysign(offset + fma(p * z, t, t), x)
    return where(x == x, y, x)


TWO_OVER_PI = 0.6366197723675814
HALF_PI_HI, HALF_PI_LO = 1.5707963267948966, 6.123233995736766e-17
C1, C2, C3 = (
    np.float32(v) for v in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
)
N1, N2, N3 = (np.float32(v) for v in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))


def _quarter(builder, magic_sum, shift):
    n = builder.trunc(builder.bitcast(magic_sum, of(magic_sum, I64)), shift.type)
    return builder.and_(builder.add(n, shift), like(shift, 3))


# (sum with MAGIC64, shift) -> (n + shift) mod 4 for the n in the sum
_quadrant = lanewise_of(("float64", "uint32"), "uint32", _quarter)


@inline
def _circular(x, shift):
    wide = np.float64(x)
    shifted = fma(wide, TWO_OVER_PI, MAGIC64)
    n = shifted - MAGIC64
    r = np.float32(fma(n, -HALF_PI_LO, fma_always(n, -HALF_PI_HI, wide)))
    z = r * r
    p = fma(N1, z, N2)
    p = fma(p, z, N3)
    odd = fma(p * z, r, r)
    p = fma(C1, z, C2)
    p = fma(p, z, C3)
    even = fma(p * z, z, fma(-HALF, z, ONE))
    quadrant = _quadrant(shifted, shift)
    y = even if quadrant & 1 else odd
    return -y if quadrant & 2 else y


@inline
def sin(x):
    """Sine; at most 2 ulp for |x| < 2^30 (reduced in float64)."""
    return _circular(x, np.uint32(0))


@inline
def cos(x):
    """Cosine; at most 2 ulp for |x| < 2^30 (reduced in float64)."""
    return _circular(x, np.uint32(1))
