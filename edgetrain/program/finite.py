"""Checks that all values to be written are finite."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import decoded
from .mapped_file import check_files


def nonfinite(tensors: Mapping[str, np.ndarray], meta: Mapping[str, Any] | None = None) -> str:
    """The first tensor, or number of `meta`, with an infinity or NaN; "" if all are finite.

    Nothing as large as a tensor is allocated, except for formats that numpy lacks.
    """
    for name, array in tensors.items():
        array = decoded(array)
        if array.dtype.kind == "f" and array.size:
            with np.errstate(invalid="ignore"):
                if not (math.isfinite(array.min()) and math.isfinite(array.max())):
                    return name
    return _nonfinite_number(meta or {}, "")


def _nonfinite_number(value: Any, name: str) -> str:
    if isinstance(value, float):
        return "" if math.isfinite(value) else name
    if isinstance(value, Mapping):
        result = (_nonfinite_number(item, str(key)) for key, item in value.items())
    elif isinstance(value, list | tuple):
        result = (_nonfinite_number(item, name) for item in value)
    else:
        return ""
    return next(filter(None, result), "")


def finite_part(
    tensors: Mapping[str, np.ndarray], initial: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """`tensors` without those that were never finite, such as a mask with infinities.

    Args:
      initial: initial values of tensors with these names; read only if needed, as they may be in a
        file.
    Raises:
      RunError: that file was truncated or overwritten.
    """

    def never_was(name: str) -> bool:
        began = {name: initial[name]}
        check_files(began)
        return bool(nonfinite(began))

    return {
        name: array
        for name, array in tensors.items()
        if name not in initial or not nonfinite({name: array}) or not never_was(name)
    }
