"""ONNX's binary functions on two float32: value(a, b) and gradients g(..., dy).

Functions with a row in elementwise/pair_formulas.py are compiled from it. NaN propagates. At a tie,
min and max give each operand half of the gradient, as in torch.
"""

import numpy as np

from ..elementwise.intrinsics import compiled
from ..elementwise.pair_formulas import PAIRS
from .inlining import inline
from .mathf import HALF, INF, MAGIC64, ZERO, copysign, fabs
from .number import fma_always
from .power import power, power_dx, power_dy


@inline
def _add(a, b):
    return a + b


@inline
def _sub(a, b):
    return a - b


@inline
def _mul(a, b):
    return a * b


@inline
def _div(a, b):
    return a / b


@inline
def _min(a, b):
    return a if a < b or a != a else b


@inline
def _max(a, b):
    return a if a > b or a != a else b


@inline
def _nearest(a, b):
    """a minus the nearest multiple of b: exact for quotients below 2^51."""
    quotient = np.float64(a) / np.float64(b)
    rounded = (quotient + MAGIC64) - MAGIC64
    rounded = quotient if abs(quotient) >= MAGIC64 * 0.25 else rounded
    rest = np.float32(fma_always(-rounded, np.float64(b), np.float64(a)))
    return a if fabs(b) == INF and fabs(a) < INF else rest


@inline
def _fmod(a, b):
    """Remainder with the sign of a."""
    rest = _nearest(a, b)
    wrong = rest != ZERO and (rest < ZERO) != (a < ZERO)
    return rest + copysign(fabs(b), a) if wrong else rest


@inline
def _mod(a, b):
    """Remainder with the sign of b, as in numpy."""
    rest = _nearest(a, b)
    wrong = rest != ZERO and (rest < ZERO) != (b < ZERO)
    return rest + b if wrong else rest


VALUE = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "pow": power, "min": _min, "max": _max,
    "fmod": _fmod, "mod": _mod,
}  # fmt: skip
VALUE |= {name: compiled(row.value) for name, row in PAIRS.items()}


@inline
def _id(dy):
    return dy


@inline
def _neg(dy):
    return -dy


@inline
def _mul_a(b, dy):
    return dy * b


@inline
def _div_a(b, dy):
    return dy / b


@inline
def _div_b(a, b, dy):
    return -dy * (a / b) / b


@inline
def _pow_a(a, b, dy):
    return dy * power_dx(a, b)


@inline
def _pow_b(a, b, dy):
    return dy * power_dy(a, b)


@inline
def _min_a(a, b, dy):
    share = HALF * dy if a == b else dy
    return ZERO if a > b else share


@inline
def _min_b(a, b, dy):
    return _min_a(b, a, dy)


@inline
def _fmod_b(a, b, dy):
    return -dy * ((a - _fmod(a, b)) / b)


@inline
def _mod_b(a, b, dy):
    return -dy * ((a - _mod(a, b)) / b)


# The arguments before dy are the operands that binary.GRADIENTS lists as read.
GRADIENT = {
    "id": _id, "neg": _neg, "mul_a": _mul_a, "mul_b": _mul_a, "div_a": _div_a, "div_b": _div_b,
    "pow_a": _pow_a, "pow_b": _pow_b, "min_a": _min_a, "min_b": _min_b,
    "fmod_b": _fmod_b, "mod_b": _mod_b,
}  # fmt: skip
GRADIENT |= {name: compiled(vjp) for row in PAIRS.values() for name, vjp in row.vjps.items()}
