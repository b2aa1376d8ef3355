"""LLVM's instructions in numpy, with a processor's bits, for numbers and lanes.

An n-bit integer is numpy's signed one, and i1 its bool. If an instruction takes it as unsigned, the
same bits are viewed as unsigned. numpy rounds to nearest even, as processors do; fma is implemented
here.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

_UNSIGNED = {np.dtype(f"i{n}"): np.dtype(f"u{n}") for n in (1, 2, 4, 8)}


def unsigned(value):
    """The same bits as an unsigned integer."""
    return value.view(_UNSIGNED[value.dtype])


def _as_unsigned(operation: Callable) -> Callable:
    """The operation on operands taken as unsigned integers; the result has the operands' type."""
    return lambda a, b: operation(unsigned(a), unsigned(b)).view(a.dtype)


def _divided(a, b):
    """Truncating division."""
    quotient = abs(a) // abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient).astype(a.dtype)[()]


def _remainder(a, b):
    """The remainder of truncating division, with the sign of a."""
    return a - _divided(a, b) * b


def fma(a, b, c):
    """a * b + c, rounded once; numbers or lanes, float32 or float64.

    The product of float32 is exact in float64. The sum is rounded to odd there: if it is not exact,
    its last bit is set. So it is never halfway between two float32, and rounding it again is the
    same as rounding once. Source: Boldo and Melquiond 2008, "Emulation of a FMA and correctly
    rounded sums".
    """
    if a.dtype == np.float64:
        exact = np.vectorize(_fma64, otypes=[np.float64])
        return exact(a, b, c)[()]
    product = np.multiply(a, b, dtype=np.float64)
    addend = np.float64(c) if np.ndim(c) == 0 else c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = np.asarray(total).view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    outward = (error > 0) == (total > 0)
    odd = bits + np.where(inexact, np.where(outward, 1, -1), 0)
    return odd.view(np.float64).astype(np.float32)[()]


def _fma64(a: float, b: float, c: float) -> float:
    """fma of float64: exact, then rounded once, because Python's division rounds to nearest."""
    if a == 0 or b == 0 or not (np.isfinite(a) and np.isfinite(b)):
        return a * b + c
    if not np.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


BINARY: dict[str, Callable] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "sdiv": _divided,
    "srem": _remainder,
    "udiv": _as_unsigned(lambda a, b: a // b),
    "urem": _as_unsigned(lambda a, b: a % b),
    "shl": lambda a, b: a << b,
    "ashr": lambda a, b: a >> b,
    "lshr": _as_unsigned(lambda a, b: a >> b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "fadd": lambda a, b: a + b,
    "fsub": lambda a, b: a - b,
    "fmul": lambda a, b: a * b,
    "fdiv": lambda a, b: a / b,
}

_ORDER: dict[str, Callable] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
_OPPOSITE = {"gt": "le", "ge": "lt", "lt": "ge", "le": "gt"}


def integers(sign: str) -> Callable:
    """icmp's comparison by its name: eq, ne, sgt, ult ..."""
    if sign in _ORDER:
        return _ORDER[sign]
    compare = _ORDER[sign[1:]]
    return compare if sign[0] == "s" else lambda a, b: compare(unsigned(a), unsigned(b))


def floats(sign: str) -> Callable:
    """fcmp's comparison by its name: o... is false for NaN, u... is true."""
    kind, order = sign[0], sign[1:]
    if sign in ("ord", "uno"):
        return lambda a, b: ((a == a) & (b == b)) == (sign == "ord")
    if kind == "o":
        return (lambda a, b: (a < b) | (a > b)) if order == "ne" else _ORDER[order]
    if order in _OPPOSITE:
        return lambda a, b: np.logical_not(_ORDER[_OPPOSITE[order]](a, b))
    return _ORDER[order] if order == "ne" else lambda a, b: ~((a < b) | (a > b))


def cast(name: str, kind: np.dtype) -> Callable:
    """One of LLVM's casts, to a type."""
    if name == "trunc" and kind == np.bool_:
        return lambda value: (value & 1).astype(kind)
    if name in ("zext", "uitofp"):
        return lambda v: (v if v.dtype == np.bool_ else unsigned(v)).astype(kind)
    if name == "sext":
        return lambda v: (-v.astype(kind)) if v.dtype == np.bool_ else v.astype(kind)
    if name == "fptoui":
        return lambda value: value.astype(_UNSIGNED[kind]).view(kind)
    return lambda value: value.astype(kind)  # trunc, fptrunc, fpext, fptosi, sitofp


# LLVM's numeric intrinsics, by the name between `llvm.` and the type.
INTRINSICS: dict[str, Callable] = {
    "fma": fma,
    "sqrt": np.sqrt,
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
}
