"""Unary functions of ONNX on one float32: value(x, a, b) and gradient(s, dy, a, b).

`s` is the function's input or output, as elementwise.UNARY says. NaN goes through; where a
function has a kink, the gradient is torch's.
"""

from collections.abc import Callable

import numpy as np

from . import mathf
from .inlining import inline
from .mathf import HALF, ONE, TWO, ZERO, copysign, erf, exp, expm1, fabs, sigmoid, tanh
from .number import fma

THREE, SIXTH, THIRD, TWENTY = (np.float32(v) for v in (3, 1 / 6, 1 / 3, 20))
SQRT_HALF, NORMAL_DENSITY = np.float32(0.5**0.5), np.float32((2 * np.pi) ** -0.5)
TWO_OVER_ROOT_PI = np.float32(2 / np.pi**0.5)
GELU_C, GELU_A, GELU_3A = (np.float32(v) for v in ((2 / np.pi) ** 0.5, 0.044715, 3 * 0.044715))
SELU_SCALE, SELU_ALPHA = np.float32(1.0507009873554805), np.float32(1.6732632423543772)

VALUE: dict[str, Callable] = {}
GRADIENT: dict[str, Callable] = {}


def _value(function):
    VALUE[function.__name__.strip("_")] = inline(function)
    return function


def _gradient(function):
    GRADIENT[function.__name__.strip("_")] = inline(function)
    return function


@_value
def relu(x, a, b):
    return ZERO if x <= ZERO else x


@_gradient
def _relu(y, dy, a, b):
    return ZERO if y <= ZERO else dy


@_value
def leaky_relu(x, a, b):
    return x if x > ZERO else a * x


@_gradient
def _leaky_relu(x, dy, a, b):
    return dy if x > ZERO else a * dy


@_value
def clip(x, a, b):
    x = a if x < a else x
    return b if x > b else x


@_gradient
def _clip(y, dy, a, b):  # a, b rounded as y was stored
    return ZERO if y <= a or y >= b else dy


@_value
def hardswish(x, a, b):
    t = fma(x, SIXTH, HALF)
    t = ZERO if t < ZERO else t
    return x * (ONE if t > ONE else t)


@_gradient
def _hardswish(x, dy, a, b):
    slope = fma(x, THIRD, HALF)
    slope = ZERO if x <= -THREE else slope
    return dy * (ONE if x >= THREE else slope)


@_value
def hardsigmoid(x, a, b):
    t = fma(x, a, b)
    t = ZERO if t < ZERO else t
    return ONE if t > ONE else t


@_gradient
def _hardsigmoid(x, dy, a, b):
    t = fma(x, a, b)
    return ZERO if t <= ZERO or t >= ONE else a * dy


@_value
def _sigmoid_(x, a, b):
    return sigmoid(x)


@_gradient
def _sigmoid(y, dy, a, b):
    return dy * (y * (ONE - y))


@_value
def _tanh_(x, a, b):
    return tanh(x)


@_gradient
def _tanh(y, dy, a, b):
    return dy * fma(-y, y, ONE)


@_value
def gelu(x, a, b):
    return HALF * x * (ONE + erf(x * SQRT_HALF))


@_gradient
def _gelu(x, dy, a, b):
    below = HALF * (ONE + erf(x * SQRT_HALF))
    density = NORMAL_DENSITY * exp(-HALF * x * x)
    return dy * fma(ZERO if density == ZERO else x, density, below)


@_value
def gelu_tanh(x, a, b):
    t = tanh(GELU_C * fma(GELU_A * x * x, x, x))
    return HALF * x * (ONE + t)


@_gradient
def _gelu_tanh(x, dy, a, b):
    t = tanh(GELU_C * fma(GELU_A * x * x, x, x))
    bend = fma(-t, t, ONE)
    inner = GELU_C * fma(GELU_3A * x, x, ONE)
    bend = ZERO if bend == ZERO else HALF * x * bend * inner
    return dy * fma(HALF, ONE + t, bend)


@_value
def _exp_(x, a, b):
    return exp(x)


@_gradient
def _exp(y, dy, a, b):
    return dy * y


@_value
def _log_(x, a, b):
    return mathf.log(x)


@_gradient
def _log(x, dy, a, b):
    return dy / x


@_value
def _sqrt_(x, a, b):
    return mathf.sqrt(x)


@_gradient
def _sqrt(y, dy, a, b):
    return dy * (HALF / y)


@_value
def neg(x, a, b):
    return -x


@_gradient
def _neg(x, dy, a, b):
    return -dy


@_value
def _abs_(x, a, b):
    return fabs(x)


@_gradient
def _abs(x, dy, a, b):
    return ZERO if x == ZERO else dy * copysign(ONE, x)


@_value
def reciprocal(x, a, b):
    return ONE / x


@_gradient
def _reciprocal(x, dy, a, b):
    r = ONE / x
    return -dy * r * r


@_value
def _erf_(x, a, b):
    return erf(x)


@_gradient
def _erf(x, dy, a, b):
    return dy * (TWO_OVER_ROOT_PI * exp(-x * x))


@_value
def elu(x, a, b):
    return x if x > ZERO else a * expm1(x)


@_gradient
def _elu(x, dy, a, b):
    return dy if x > ZERO else dy * a * exp(x)


@_value
def selu(x, a, b):
    return SELU_SCALE * (x if x > ZERO else SELU_ALPHA * expm1(x))


@_gradient
def _selu(x, dy, a, b):
    return dy * SELU_SCALE * (ONE if x > ZERO else SELU_ALPHA * exp(x))


@_value
def softplus(x, a, b):
    return mathf.softplus(x)


@_gradient
def _softplus(x, dy, a, b):
    return dy * sigmoid(x)


@_value
def silu(x, a, b):
    return x * sigmoid(x)


@_gradient
def _silu(x, dy, a, b):
    s = sigmoid(x)
    bend = s * (ONE - s)
    bend = ZERO if bend == ZERO else x * bend
    return dy * (s + bend)


@inline
def _tanh_softplus(x):
    """tanh(log(1 + e^x)) as a quotient; 1 beyond 20."""
    e = exp(TWENTY if x > TWENTY else x)
    w = e * (e + TWO)
    return w / (w + TWO)


@_value
def mish(x, a, b):
    return x * _tanh_softplus(x)


@_gradient
def _mish(x, dy, a, b):
    t = _tanh_softplus(x)
    bend = sigmoid(x) * fma(-t, t, ONE)
    bend = ZERO if bend == ZERO else x * bend
    return dy * (t + bend)


@_value
def softsign(x, a, b):
    return x / (ONE + fabs(x))


@_gradient
def _softsign(x, dy, a, b):
    r = ONE / (ONE + fabs(x))
    return dy * r * r


@_value
def sign(x, a, b):
    y = ONE if x > ZERO else x
    return -ONE if x < ZERO else y


@_value
def _floor_(x, a, b):
    return mathf.floor(x)


@_value
def _ceil_(x, a, b):
    return mathf.ceil(x)


@_value
def _round_(x, a, b):
    return mathf.rint(x)


@_value
def _sin_(x, a, b):
    return mathf.sin(x)


@_gradient
def _sin(x, dy, a, b):
    return dy * mathf.cos(x)


@_value
def _cos_(x, a, b):
    return mathf.cos(x)


@_gradient
def _cos(x, dy, a, b):
    return -dy * mathf.sin(x)
