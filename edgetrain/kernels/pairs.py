"""Binary functions of ONNX on two float32: value(a, b) and gradients g(..., dy).

NaN goes through; at a tie min and max give each operand half of the gradient, as torch does.
"""

from .jit import inline
from .mathf import HALF, ZERO
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


VALUE = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "pow": power, "min": _min, "max": _max
}  # fmt: skip


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


# The arguments before dy are the operands that binary.GRADIENTS says are read.
GRADIENT = {
    "id": _id, "neg": _neg, "mul_a": _mul_a, "mul_b": _mul_a, "div_a": _div_a, "div_b": _div_b,
    "pow_a": _pow_a, "pow_b": _pow_b, "min_a": _min_a, "min_b": _min_b, "max_a": _min_b,
    "max_b": _min_a,
}  # fmt: skip
