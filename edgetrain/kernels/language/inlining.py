"""Inline functions that kernels are made of."""

import functools
from collections.abc import Callable
from typing import Any


class Inline:
    """A helper that only kernels can call; always inlined, and compiled with the kernel.

    Attributes:
      py_func: the original Python function.
    """

    __qualname__: str

    def __init__(self, function: Callable) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function

    def __call__(self, *args: Any) -> Any:
        raise TypeError(
            f"{self.__qualname__} can only be called by kernels; use its py_func in Python"
        )


def inline(function: Callable) -> Inline:
    """Make a function callable by kernels."""
    return Inline(function)
