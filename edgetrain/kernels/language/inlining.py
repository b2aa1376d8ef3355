"""Functions that kernels are made of."""

from collections.abc import Callable


def inline(function: Callable) -> Callable:
    """A helper that kernels call (Python cannot); always inlined, compiled when a kernel is."""
    import numba

    return numba.njit(forceinline=True, error_model="numpy", no_cpython_wrapper=True)(function)
