"""Functions that kernels are made of."""

import functools
from collections.abc import Callable
from typing import Any


class Inline:
    """A helper that kernels call (Python cannot); always inlined, compiled when a kernel is.

    Attributes:
      py_func: the function as it is written.
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
    """Let kernels call a function."""
    return Inline(function)
