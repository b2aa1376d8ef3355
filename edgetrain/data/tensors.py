"""Converts what users pass as samples: arrays, lists, tensors of other libraries."""

import math
from typing import Any

import numpy as np

from edgetrain.errors import DataError

from ..units.wording import counted
from .checks.layout import check_layout, fitting_transpose


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor with torch's methods. (Files have `detach` too.)"""
    return not isinstance(value, np.ndarray) and hasattr(value, "detach") and hasattr(value, "cpu")


def as_array(label: str, value: Any) -> np.ndarray:
    """An array from an array, a number, a list of numbers, or a tensor.

    torch tensors are recognised by their methods; torch is never imported.

    Raises:
      DataError: the value is not one array of numbers, or has masked numbers.
    """
    if is_tensor(value):
        value = value.detach().cpu()
        if "bfloat16" in str(getattr(value, "dtype", "")):
            value = value.float()  # a type that numpy does not have
    check_mask(label, value)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise DataError(f"{label}: {_described(value, error)}") from None
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{label}: {repr(value)[:60]} ({array.dtype.name} values); expected numbers. Convert "
            "them."
        )
    return array


def _described(value: Any, error: Exception) -> str:
    """Why something is not one array."""
    parts = value if isinstance(value, list | tuple) else ()
    shapes = [list(part.shape) for part in parts if hasattr(part, "shape")]
    if not shapes or len(shapes) < len(parts):
        return f"{_first_line(error)}. Pass an array of numbers."
    kind, more = type(value).__name__, ", .." if len(shapes) > 3 else ""
    return (
        f"a {kind} of {counted(len(shapes), 'array')} with shapes "
        f"{', '.join(map(str, shapes[:3]))}{more}; expected one array, or arrays of one shape."
    )


def check_mask(label: str, value: Any) -> None:
    """Refuse a numpy.ma array with masked values, which would be read as numbers.

    Raises:
      DataError: says how many values are masked.
    """
    if hasattr(value, "filled") and (count := np.count_nonzero(np.asarray(value.mask))):
        raise DataError(
            f"{label}: {count} values are masked. Fill them in, for example with array.filled(0), "
            "or leave these samples out."
        )


def as_samples(
    label: str, value: Any, shape: tuple[int, ...], batch: int = 0
) -> tuple[np.ndarray, bool]:
    """Samples along axis `batch`; a single sample may come without this axis.

    Args:
      shape: shape of one sample; axes of size 1 are optional.
    Returns:
      An array [n, ...] with samples first, and whether it was a single sample without the axis.
    Raises:
      DataError: the shape does not fit.
    """
    array = as_array(label, value)
    if array.ndim <= len(shape) and _fits(array.shape, shape):
        return array[None], True
    result = _counted(array, shape, batch)
    if result is not None:
        return result, False
    if not batch:
        if array.ndim == len(shape) and fitting_transpose(array.shape, shape) is not None:
            check_layout(label, array.shape, shape)
        if array.ndim == len(shape) + 1:
            check_layout(label, array.shape[1:], shape)
    raise DataError(
        f"{label} has shape {list(array.shape)}; expected {_shown(shape)} for one sample, or "
        f"{_shown(_with(shape, batch, 'n'))} for several."
    )


def as_targets(
    label: str, value: Any, shape: tuple[int, ...], count: int, batch: int = 0
) -> np.ndarray:
    """Targets of `count` samples along axis `batch`; a single target may come without this axis.

    Returns:
      An array [count, ...] with samples first.
    Raises:
      DataError: the number or shape does not fit.
    """
    array = as_array(label, value)
    if count == 1 and array.size == math.prod(shape) and _fits(array.shape, shape):
        return array.reshape(1, *shape)
    result = _counted(array, shape, batch)
    if result is None or len(result) != count:
        wanted = _shown(_with(shape, batch, count))
        raise DataError(
            f"{label} has shape {list(array.shape)}; expected {wanted}: "
            f"{count} sample{'s' * (count != 1)}. {_advice(array.shape, shape, count)}"
        )
    return result


def _counted(array: np.ndarray, shape: tuple[int, ...], batch: int) -> np.ndarray | None:
    """The array with its sample axis first; None if it has none.

    Axes of size 1 before it may be missing.
    """
    ahead = [*shape[:batch]]
    for axis in dict.fromkeys((batch, batch - ahead.count(1))):
        before = ahead if axis == batch else [size for size in ahead if size != 1]
        if axis < array.ndim and [*array.shape[:axis]] == before or (not batch and array.ndim):
            result = np.moveaxis(array, axis, 0)
            if _fits(result.shape[1:], shape):
                return result
    return None


def _with(shape: tuple[int, ...], batch: int, count: int | str) -> tuple[int | str, ...]:
    return (*shape[:batch], count, *shape[batch:])


def _shown(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _advice(found: tuple[int, ...], wanted: tuple[int, ...], count: int) -> str:
    one = count == 1 and not wanted and len(found) == 1 and found[0] > 1
    if one:
        return "If this is one-hot, pass y.argmax(), the class number."
    if found[:1] == (count,) and len(found) == len(wanted) + 2:
        return "If these are one-hot, pass y.argmax(1), the class numbers."
    if found[:1] == (count,):
        return "Pass targets of this shape; losses of classes have an option class_axis."
    return "Pass as many targets as samples."


def _fits(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return [size for size in found if size != 1] == [size for size in wanted if size != 1]


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()
    return text[0].partition(". ")[0].rstrip(".")[:120] if text else type(error).__name__
