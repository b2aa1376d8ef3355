"""Naive float64 twins of the elementwise kernels: value(x, a, b) and slope(x, y, a, b).

A function without a twin here uses its own formula with numpy's intrinsics, and a difference
quotient as slope. Whether the formula itself is right is tested by tests/cases.py.
"""

import numpy as np
from scipy import special

from edgetrain.kernels.elementwise.formulas import ROWS
from edgetrain.kernels.elementwise.intrinsics import bound

SELU = 1.0507009873554805, 1.6732632423543772


def sigmoid(x):
    return special.expit(x)


def _density(x):
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _steps(x, a, b):
    return np.rint(x / a) + b


def _gelu_inner(x):
    return np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


VALUE = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "leaky_relu": lambda x, a, b: np.where(x > 0, x, a * x),
    "clip": lambda x, a, b: np.minimum(np.maximum(x, a), b),
    "clamp": lambda x, a, b: np.minimum(np.maximum(x, a), b),
    "hardswish": lambda x, a, b: x * np.clip(x / 6 + 0.5, 0, 1),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "sigmoid": lambda x, a, b: sigmoid(x),
    "tanh": lambda x, a, b: np.tanh(x),
    "gelu": lambda x, a, b: x * special.ndtr(x),
    "gelu_tanh": lambda x, a, b: x / 2 * (1 + _gelu_inner(x)),
    "exp": lambda x, a, b: np.exp(x),
    "log": lambda x, a, b: np.log(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "neg": lambda x, a, b: -x,
    "abs": lambda x, a, b: np.abs(x),
    "reciprocal": lambda x, a, b: 1 / x,
    "erf": lambda x, a, b: special.erf(x),
    "elu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(x)),
    "selu": lambda x, a, b: SELU[0] * np.where(x > 0, x, SELU[1] * np.expm1(x)),
    "softplus": lambda x, a, b: _softplus(x),
    "silu": lambda x, a, b: x * sigmoid(x),
    "mish": lambda x, a, b: x * np.tanh(_softplus(x)),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "sign": lambda x, a, b: np.sign(x),
    "floor": lambda x, a, b: np.floor(x),
    "ceil": lambda x, a, b: np.ceil(x),
    "round": lambda x, a, b: np.rint(x),
    "sin": lambda x, a, b: np.sin(x),
    "cos": lambda x, a, b: np.cos(x),
    "fake_quantize": lambda x, a, b: (np.clip(_steps(x, a, b), 0, 255) - b) * a,
}

SLOPE = {
    "relu": lambda x, y, a, b: 1.0 * (y > 0),
    "leaky_relu": lambda x, y, a, b: np.where(x > 0, 1, a),
    "clip": lambda x, y, a, b: 1.0 * ((y > a) & (y < b)),
    "clamp": lambda x, y, a, b: 1.0 * ((x >= a) & (x <= b)),
    "hardswish": lambda x, y, a, b: np.where(x <= -3, 0, np.where(x >= 3, 1, x / 3 + 0.5)),
    "hardsigmoid": lambda x, y, a, b: np.where((a * x + b > 0) & (a * x + b < 1), a, 0),
    "sigmoid": lambda x, y, a, b: y * (1 - y),
    "tanh": lambda x, y, a, b: 1 - y * y,
    "gelu": lambda x, y, a, b: special.ndtr(x) + x * _density(x),
    "gelu_tanh": lambda x, y, a, b: (
        (1 + _gelu_inner(x)) / 2
        + x / 2 * (1 - _gelu_inner(x) ** 2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x)
    ),
    "exp": lambda x, y, a, b: y,
    "log": lambda x, y, a, b: 1 / x,
    "sqrt": lambda x, y, a, b: np.where(y == 0, 0.0, 0.5 / np.where(y == 0, 1, y)),
    "neg": lambda x, y, a, b: np.full_like(x, -1.0),
    "abs": lambda x, y, a, b: np.sign(x),
    "reciprocal": lambda x, y, a, b: -1 / (x * x),
    "erf": lambda x, y, a, b: 2 / np.sqrt(np.pi) * np.exp(-x * x),
    "elu": lambda x, y, a, b: np.where(x > 0, 1, a * np.exp(np.minimum(x, 0))),
    "selu": lambda x, y, a, b: SELU[0] * np.where(x > 0, 1, SELU[1] * np.exp(np.minimum(x, 0))),
    "softplus": lambda x, y, a, b: sigmoid(x),
    "silu": lambda x, y, a, b: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "mish": lambda x, y, a, b: (
        np.tanh(_softplus(x)) + x * sigmoid(x) / np.cosh(np.minimum(_softplus(x), 300)) ** 2
    ),
    "softsign": lambda x, y, a, b: 1 / (1 + np.abs(x)) ** 2,
    "sin": lambda x, y, a, b: np.cos(x),
    "cos": lambda x, y, a, b: -np.sin(x),
    "fake_quantize": lambda x, y, a, b: 1.0 * ((_steps(x, a, b) >= 0) & (_steps(x, a, b) <= 255)),
    "round_through": lambda x, y, a, b: np.ones_like(x),
}

INTRINSICS = {
    "atan": np.arctan, "log1p": np.log1p,
    "ceil": np.ceil, "copysign": np.copysign, "cosine": np.cos, "erf": special.erf, "exp": np.exp,
    "expm1": np.expm1, "fabs": np.abs, "floor": np.floor, "fma": lambda a, b, c: a * b + c,
    "log": np.log, "rint": np.rint, "sigmoid": special.expit, "sine": np.sin,
    "softplus": _softplus, "sqrt": np.sqrt, "tanh": np.tanh, "where": np.where,
}  # fmt: skip
STEP = 1e-6


def value(name):
    """Return the function (x, a, b) -> y."""
    return VALUE.get(name) or bound(ROWS[name].value, INTRINSICS)


def slope(name):
    """Return the function (x, y, a, b) -> dy/dx."""

    def difference(x, y, a, b):
        of = value(name)
        return (of(x + STEP, a, b) - of(x - STEP, a, b)) / (2 * STEP)

    return SLOPE.get(name) or difference


def relu_mask(x):
    """Return relu(x) and its mask bits, little-endian."""
    return np.maximum(x, 0), np.packbits(~(x <= 0), bitorder="little")


def relu_mask_bwd(mask, dy):
    """Return dy where the mask bit is set, else 0."""
    keep = np.unpackbits(mask, count=dy.size, bitorder="little")
    return np.where(keep, dy, 0)
