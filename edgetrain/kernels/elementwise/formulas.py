"""Functions of one number, one table row each; ops, kernels, activations and parity use it.

A formula takes x, a number or a vector of them, and the function's parameters a and b; its vjp
(vector-Jacobian product) takes the value s that backward reads, x or y, the gradient dy of y, and a
and b. Their intrinsics are not imported but bound (intrinsics.py). Constants have names, so that
they can be float32 in kernels. NaN passes through; a kink has torch's gradient.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .intrinsics import NUMBERS_ONLY, words_of
from .rows import table

if TYPE_CHECKING:
    from ..language.mathf import (
        atan,
        ceil,
        copysign,
        erf,
        exp,
        expm1,
        fabs,
        floor,
        log,
        log1p,
        rint,
        sigmoid,
        softplus,
        sqrt,
        tanh,
    )
    from ..language.mathf import cos as cosine
    from ..language.mathf import sin as sine
    from ..language.number import fma, where

ZERO, HALF, ONE, TWO, THREE, TWENTY = 0.0, 0.5, 1.0, 2.0, 3.0, 20.0
SIXTH, THIRD, SQRT_HALF, NORMAL_DENSITY = 1 / 6, 1 / 3, 0.5**0.5, (2 * math.pi) ** -0.5
TWO_OVER_ROOT_PI = 2 / math.pi**0.5
GELU_C, GELU_A, GELU_3A = (2 / math.pi) ** 0.5, 0.044715, 3 * 0.044715
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
BYTE = 255.0  # the largest number of 8 bits
LARGE, LN2 = 1e6, math.log(2)  # above LARGE, x^2 + 1 is x^2


def relu(x, a, b):
    return where(x <= ZERO, ZERO, x)


def relu_vjp(y, dy, a, b):
    return where(y <= ZERO, ZERO, dy)


def leaky_relu(x, a, b):
    return where(x > ZERO, x, a * x)


def leaky_relu_vjp(x, dy, a, b):
    return where(x > ZERO, dy, a * dy)


def clip(x, a, b):
    x = where(x < a, a, x)
    return where(x > b, b, x)


def clip_vjp(y, dy, a, b):  # a, b are rounded like the stored y
    return where(y <= a, ZERO, where(y >= b, ZERO, dy))


def clamp_vjp(x, dy, a, b):
    return where(x < a, ZERO, where(x > b, ZERO, dy))


def hardswish(x, a, b):
    t = fma(x, SIXTH, HALF)
    t = where(t < ZERO, ZERO, t)
    return x * where(t > ONE, ONE, t)


def hardswish_vjp(x, dy, a, b):
    slope = fma(x, THIRD, HALF)
    slope = where(x <= -THREE, ZERO, slope)
    return dy * where(x >= THREE, ONE, slope)


def hardsigmoid(x, a, b):
    t = fma(x, a, b)
    t = where(t < ZERO, ZERO, t)
    return where(t > ONE, ONE, t)


def hardsigmoid_vjp(x, dy, a, b):
    t = fma(x, a, b)
    return where(t <= ZERO, ZERO, where(t >= ONE, ZERO, a * dy))


def sigmoid_(x, a, b):
    return sigmoid(x)


def sigmoid_vjp(y, dy, a, b):
    return dy * (y * (ONE - y))


def tanh_(x, a, b):
    return tanh(x)


def tanh_vjp(y, dy, a, b):
    return dy * fma(-y, y, ONE)


def gelu(x, a, b):
    return HALF * x * (ONE + erf(x * SQRT_HALF))


def gelu_vjp(x, dy, a, b):
    below = HALF * (ONE + erf(x * SQRT_HALF))
    density = NORMAL_DENSITY * exp(-HALF * x * x)
    return dy * fma(where(density == ZERO, ZERO, x), density, below)


def gelu_tanh(x, a, b):
    t = tanh(GELU_C * fma(GELU_A * x * x, x, x))
    return HALF * x * (ONE + t)


def gelu_tanh_vjp(x, dy, a, b):
    t = tanh(GELU_C * fma(GELU_A * x * x, x, x))
    bend = fma(-t, t, ONE)
    inner = GELU_C * fma(GELU_3A * x, x, ONE)
    bend = where(bend == ZERO, ZERO, HALF * x * bend * inner)
    return dy * fma(HALF, ONE + t, bend)


def exp_(x, a, b):
    return exp(x)


def exp_vjp(y, dy, a, b):
    return dy * y


def log_(x, a, b):
    return log(x)


def log_vjp(x, dy, a, b):
    return dy / x


def sqrt_(x, a, b):
    return sqrt(x)


def sqrt_vjp(y, dy, a, b):
    """0 at 0, although the slope is infinite: so a deviation or norm of 0 has the gradient 0."""
    return where(y <= ZERO, ZERO, dy * (HALF / y))


def neg(x, a, b):
    return -x


def neg_vjp(x, dy, a, b):
    return -dy


def abs_(x, a, b):
    return fabs(x)


def abs_vjp(x, dy, a, b):
    return where(x == ZERO, ZERO, dy * copysign(ONE, x))


def reciprocal(x, a, b):
    return ONE / x


def reciprocal_vjp(x, dy, a, b):
    r = ONE / x
    return -dy * r * r


def erf_(x, a, b):
    return erf(x)


def erf_vjp(x, dy, a, b):
    return dy * (TWO_OVER_ROOT_PI * exp(-x * x))


def elu(x, a, b):
    return where(x > ZERO, x, a * expm1(x))


def elu_vjp(x, dy, a, b):
    return where(x > ZERO, dy, dy * a * exp(x))


def selu(x, a, b):
    return SELU_SCALE * where(x > ZERO, x, SELU_ALPHA * expm1(x))


def selu_vjp(x, dy, a, b):
    return dy * SELU_SCALE * where(x > ZERO, ONE, SELU_ALPHA * exp(x))


def softplus_(x, a, b):
    return softplus(x)


def softplus_vjp(x, dy, a, b):
    return dy * sigmoid(x)


def silu(x, a, b):
    return x * sigmoid(x)


def silu_vjp(x, dy, a, b):
    s = sigmoid(x)
    bend = s * (ONE - s)
    bend = where(bend == ZERO, ZERO, x * bend)
    return dy * (s + bend)


def silu_slope(z, lo, hi):
    s = sigmoid(z)
    return s * fma(z, ONE - s, ONE)


def tanh_softplus(x):
    """tanh(log(1 + e^x)) as a quotient; x is limited to 20, beyond it the result is 1."""
    e = exp(where(x > TWENTY, TWENTY, x))
    w = e * (e + TWO)
    return w / (w + TWO)


def mish(x, a, b):
    return x * tanh_softplus(x)


def mish_vjp(x, dy, a, b):
    t = tanh_softplus(x)
    bend = sigmoid(x) * fma(-t, t, ONE)
    bend = where(bend == ZERO, ZERO, x * bend)
    return dy * (t + bend)


def softsign(x, a, b):
    return x / (ONE + fabs(x))


def softsign_vjp(x, dy, a, b):
    r = ONE / (ONE + fabs(x))
    return dy * r * r


def sign(x, a, b):
    y = where(x > ZERO, ONE, x)
    return where(x < ZERO, -ONE, y)


def floor_(x, a, b):
    return floor(x)


def ceil_(x, a, b):
    return ceil(x)


def round_(x, a, b):
    return rint(x)


def sin(x, a, b):
    return sine(x)


def sin_vjp(x, dy, a, b):
    return dy * cosine(x)


def cos(x, a, b):
    return cosine(x)


def cos_vjp(x, dy, a, b):
    return -dy * sine(x)


def atan_(x, a, b):
    return atan(x)


def atan_vjp(x, dy, a, b):
    return dy / fma(x, x, ONE)


def asin(x, a, b):
    return TWO * atan(x / (ONE + sqrt((ONE - x) * (ONE + x))))


def asin_vjp(x, dy, a, b):
    return dy / sqrt((ONE - x) * (ONE + x))


def acos(x, a, b):
    return TWO * atan(sqrt(ONE - x) / sqrt(ONE + x))


def acos_vjp(x, dy, a, b):
    return -dy / sqrt((ONE - x) * (ONE + x))


def sinh(x, a, b):
    half, t = exp(HALF * fabs(x)), expm1(fabs(x))
    small = HALF * (t + t / (t + ONE))
    return copysign(where(fabs(x) > TWENTY, HALF * half * half, small), x)


def sinh_vjp(x, dy, a, b):
    return dy * cosh(x, a, b)


def cosh(x, a, b):
    half = exp(HALF * fabs(x))
    return HALF * half * half + HALF / (half * half)


def cosh_vjp(x, dy, a, b):
    return dy * sinh(x, a, b)


def tan(x, a, b):
    return sine(x) / cosine(x)


def tan_vjp(y, dy, a, b):
    return dy * fma(y, y, ONE)


def asinh(x, a, b):
    size = fabs(x)
    small = log1p(size + size * size / (ONE + sqrt(fma(size, size, ONE))))
    return copysign(where(size > LARGE, log(size) + LN2, small), x)


def asinh_vjp(x, dy, a, b):
    return dy / sqrt(fma(x, x, ONE))


def acosh(x, a, b):
    t = x - ONE
    return where(x > LARGE, log(x) + LN2, log1p(t + sqrt(t * (t + TWO))))


def acosh_vjp(x, dy, a, b):
    return dy / (sqrt(x - ONE) * sqrt(x + ONE))


def atanh(x, a, b):
    size = fabs(x)
    return copysign(HALF * log1p(TWO * size / (ONE - size)), x)


def atanh_vjp(x, dy, a, b):
    return dy / ((ONE - x) * (ONE + x))


def celu(x, a, b):
    return where(x > ZERO, x, a * expm1(x / a))


def celu_vjp(x, dy, a, b):
    return where(x > ZERO, dy, dy * exp(x / a))


def thresholded_relu(x, a, b):
    return where(x <= a, ZERO, x)


def thresholded_relu_vjp(x, dy, a, b):
    return where(x <= a, ZERO, dy)


def fake_quantize(x, a, b):
    """a is the scale, b the zero point; quantized numbers are 0 to 255."""
    q = rint(x / a) + b
    q = where(q < ZERO, ZERO, q)
    return (where(q > BYTE, BYTE, q) - b) * a


def fake_quantize_vjp(x, dy, a, b):
    q = rint(x / a) + b
    return where(q < ZERO, ZERO, where(q > BYTE, ZERO, dy))


def round_through(x, a, b):
    return rint(x)


def round_through_vjp(x, dy, a, b):
    return dy


def _smooth(a: float, b: float) -> tuple[float, ...]:
    return ()


def _at_zero(a: float, b: float) -> tuple[float, ...]:
    return (0.0,)


def _beside(a: float, b: float) -> tuple[float, ...]:
    """The float32 numbers just outside [a, b]; at a and b themselves the slope is 1."""
    import numpy as np

    ends = ((a, -math.inf), (b, math.inf))
    below, above = (np.nextafter(np.float32(end), np.float32(far)) for end, far in ends)
    return float(below), float(above)


@dataclass(frozen=True, slots=True)
class Row:
    """A function of one number.

    Attributes:
      name: of the op; its kernels are un_NAME and un_NAME_bwd.
      value, vjp: see the module docstring; without a vjp, the slope is 0 almost everywhere.
      saved: what the vjp reads, "x" or "y"; "": neither.
      onnx: an ONNX op type for this function.
      a, b: names and defaults of their ONNX attributes; "" if the function has none.
      act: its code as an activation fused into a convolution or a norm
        (language/fused_activation.py), or 0; its formulas use none of NUMBERS_ONLY.
      slope: (z, lo, hi) -> slope of the fused activation, if its expression differs from the vjp's.
      domain: ends of the interval of x.
      bounded: whether the slope is bounded, so backward may read a rounded x or y (`--saved`); for
        parameters with the signs of their defaults.
      kinks: (a, b) -> points at which the slope jumps, of x and of the value the vjp reads; at
        most two. Rounding never crosses them.
      revision: of the vjp's kernel; raised if its bits change.
    """

    name: str
    value: Callable
    vjp: Callable | None = None
    saved: str = "x"
    onnx: str = ""
    a: tuple[str, float] = ("", 0.0)
    b: tuple[str, float] = ("", 0.0)
    act: int = 0
    slope: Callable | None = None
    domain: tuple[float, float] = (-math.inf, math.inf)
    bounded: bool = field(kw_only=True)
    kinks: Callable[[float, float], tuple[float, ...]] = _smooth
    revision: int = 1


def fused(rows: Iterable[Row]) -> dict[int, Row]:
    """The functions that have a code as a fused activation, by this code.

    Raises:
      ValueError: two have the same code, or a formula has no form for vectors, or no slope.
    """
    result = table("act", sorted(rows, key=lambda row: row.act))
    for row in result.values():
        if row.vjp is None:
            raise ValueError(f"function {row.name}: no vjp, but act {row.act}; expected act 0.")
        if missing := NUMBERS_ONLY & (words_of(row.value) | words_of(row.slope or row.vjp)):
            raise ValueError(
                f"function {row.name}: {min(missing)} has no form for vectors, but act is "
                f"{row.act}; expected act 0."
            )
    return result


_POSITIVE = (0.0, math.inf)
ROWS: dict[str, Row] = table(
    "name",
    (
        Row("relu", relu, relu_vjp, "y", "Relu", act=1, bounded=True, kinks=_at_zero),
        Row(
            "leaky_relu", leaky_relu, leaky_relu_vjp, "x", "LeakyRelu", ("alpha", 0.01), act=6,
            bounded=True, kinks=_at_zero,
        ),
        Row(
            "clip", clip, clip_vjp, "y", "", ("min", -math.inf), ("max", math.inf), act=2,
            bounded=True, kinks=lambda a, b: (a, b),
        ),
        Row(
            "clamp", clip, clamp_vjp, "x", "", ("min", -math.inf), ("max", math.inf),
            bounded=True, kinks=_beside,
        ),
        Row(
            "hardswish", hardswish, hardswish_vjp, "x", "HardSwish", act=3,
            bounded=True, kinks=lambda a, b: (-THREE, THREE),
        ),
        Row(
            "hardsigmoid", hardsigmoid, hardsigmoid_vjp, "x", "HardSigmoid", ("alpha", 0.2),
            ("beta", 0.5), bounded=True, kinks=lambda a, b: (-b / a, (1 - b) / a) if a else (),
        ),
        Row("sigmoid", sigmoid_, sigmoid_vjp, "y", "Sigmoid", act=4, bounded=True),
        Row("tanh", tanh_, tanh_vjp, "y", "Tanh", bounded=True),
        Row("gelu", gelu, gelu_vjp, bounded=True),
        Row("gelu_tanh", gelu_tanh, gelu_tanh_vjp, bounded=True),
        Row("exp", exp_, exp_vjp, "y", "Exp", bounded=False),
        Row("log", log_, log_vjp, "x", "Log", domain=_POSITIVE, bounded=False),
        Row("sqrt", sqrt_, sqrt_vjp, "y", "Sqrt", domain=_POSITIVE, bounded=False, revision=2),
        Row("neg", neg, neg_vjp, "", "Neg", bounded=True),
        Row("abs", abs_, abs_vjp, "x", "Abs", bounded=True, kinks=_at_zero),
        Row(
            "reciprocal", reciprocal, reciprocal_vjp, "x", "Reciprocal", domain=_POSITIVE,
            bounded=False,
        ),
        Row("erf", erf_, erf_vjp, "x", "Erf", bounded=True),
        Row("elu", elu, elu_vjp, "x", "Elu", ("alpha", 1.0), bounded=True, kinks=_at_zero),
        Row("selu", selu, selu_vjp, bounded=True, kinks=_at_zero),
        Row("softplus", softplus_, softplus_vjp, "x", "Softplus", bounded=True),
        Row("silu", silu, silu_vjp, act=5, slope=silu_slope, bounded=True),
        Row("mish", mish, mish_vjp, "x", "Mish", bounded=True),
        Row("softsign", softsign, softsign_vjp, "x", "Softsign", bounded=True),
        Row("sign", sign, None, "", "Sign", bounded=True),
        Row("floor", floor_, None, "", "Floor", bounded=True),
        Row("ceil", ceil_, None, "", "Ceil", bounded=True),
        Row("round", round_, None, "", "Round", bounded=True),
        Row("sin", sin, sin_vjp, "x", "Sin", bounded=True),
        Row("cos", cos, cos_vjp, "x", "Cos", bounded=True),
        Row(
            "thresholded_relu", thresholded_relu, thresholded_relu_vjp, "x", "ThresholdedRelu",
            ("alpha", 1.0), bounded=True, kinks=lambda a, b: (a,),
        ),
        Row("celu", celu, celu_vjp, "x", "Celu", ("alpha", 1.0), bounded=True),
        Row("atanh", atanh, atanh_vjp, "x", "Atanh", domain=(-1.0, 1.0), bounded=False),
        Row("acosh", acosh, acosh_vjp, "x", "Acosh", domain=(1.0, math.inf), bounded=False),
        Row("asinh", asinh, asinh_vjp, "x", "Asinh", bounded=True),
        Row("tan", tan, tan_vjp, "y", "Tan", bounded=False),
        Row("cosh", cosh, cosh_vjp, "x", "Cosh", bounded=False),
        Row("sinh", sinh, sinh_vjp, "x", "Sinh", bounded=False),
        Row("acos", acos, acos_vjp, "x", "Acos", domain=(-1.0, 1.0), bounded=False),
        Row("asin", asin, asin_vjp, "x", "Asin", domain=(-1.0, 1.0), bounded=False),
        Row("atan", atan_, atan_vjp, "x", "Atan", bounded=True),
        Row(
            "fake_quantize", fake_quantize, fake_quantize_vjp,
            bounded=True, kinks=lambda a, b: (-(b + HALF) * a, (BYTE + HALF - b) * a),
        ),
        Row("round_through", round_through, round_through_vjp, "", bounded=True),
    ),
)  # fmt: skip
FUSED: dict[int, Row] = fused(ROWS.values())
ONE_KINK, TWO_KINKS = ROWS["relu"].act, ROWS["clip"].act  # codes of functions with that many
