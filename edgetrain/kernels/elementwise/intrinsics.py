"""Binds formulas (formulas.py) to intrinsics: those of language/ in kernels, torch's in parity's
reference, numpy's in tests."""

import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

INTRINSICS = (
    "atan", "ceil", "copysign", "cosine", "erf", "exp", "expm1", "fabs", "floor", "fma", "log",
    "log1p", "rint", "sigmoid", "sine", "softplus", "sqrt", "tanh", "where",
)  # fmt: skip
NUMBERS_ONLY = {"cosine", "sine"}  # intrinsics without a form for vectors


def words_of(function: Callable) -> set[str]:
    """Names in a formula, and in the functions of its file that it calls."""
    assert isinstance(function, FunctionType)
    found = {*function.__code__.co_names}
    called = [function.__globals__.get(name) for name in found - {*INTRINSICS}]
    return found.union(*(words_of(call) for call in called if isinstance(call, FunctionType)))


def bound(
    function: Callable,
    intrinsics: Mapping[str, Any],
    number: Callable[[float], Any] = float,
    made: Callable[[Callable], Callable] = lambda function: function,
) -> Callable:
    """Bind a formula, vjp or slope to intrinsics.

    Args:
      intrinsics: the implementation of each of INTRINSICS.
      number: converts the named constants.
      made: applied to the function, and to the functions of its file that it calls.
    """
    assert isinstance(function, FunctionType)
    scope: dict[str, Any] = {}
    for name in function.__code__.co_names:
        result = function.__globals__.get(name)
        if name in INTRINSICS:
            scope[name] = intrinsics[name]
        elif isinstance(result, float):
            scope[name] = number(result)
        elif isinstance(result, FunctionType):
            scope[name] = bound(result, intrinsics, number, made)
    return made(FunctionType(function.__code__, scope, function.__name__))


@functools.cache
def compiled(function: Callable) -> Callable:
    """A formula, vjp or slope for kernels: inline, on float32 or vectors of them."""
    import numpy as np

    from ..language import mathf, number
    from ..language.inlining import inline

    words = {name: getattr(mathf, name, None) or getattr(number, name, None) for name in INTRINSICS}
    words |= {"sine": mathf.sin, "cosine": mathf.cos}
    return bound(function, words, np.float32, inline)
