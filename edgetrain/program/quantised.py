"""Rounds trained weights to the integer grid of a quantised file.

Scales and zero points stay unchanged: training with --quantized keep used exactly these, and so did
the calibration of activations. Values outside the grid are clipped to its ends.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..errors import ProgramError
from ..formats import decoded

# Metadata: tensor of integers -> [weight, scales, zero point, axis, block]: importer/quantised.py.
QUANTISED = "edgetrain.quantised"


class Stored(NamedTuple):
    """A tensor of the stored model: shape, numpy dtype in the file, and bytes."""

    dims: tuple[int, ...]
    dtype: str
    raw: bytes

    @property
    def array(self) -> np.ndarray:
        result = np.frombuffer(self.raw, self.dtype)
        if result.size != math.prod(self.dims):
            raise ValueError(f"a scale of shape {list(self.dims)} has {result.size} numbers")
        return result.reshape(self.dims)


def integers_of(
    text: str, tensors: Mapping[str, Stored], state: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Integer tensors by name, for the weights in `state`.

    Args:
      text: the metadata entry QUANTISED; "" if the file was not quantised.
      tensors: the stored model's tensors the metadata refers to.
    Raises:
      ProgramError: the metadata is damaged.
    """
    return {name: _inside(whole, kind) for name, whole, kind in _wholes(text, tensors, state)}


def beyond(
    text: str, tensors: Mapping[str, Stored], state: Mapping[str, np.ndarray]
) -> tuple[int, int]:
    """(number of these weights at least a step outside the integer range, number of weights)."""
    lost = count = 0
    for _, whole, kind in _wholes(text, tensors, state):
        lost += int(np.count_nonzero(np.abs(whole - _inside(whole, kind)) >= 1))
        count += whole.size
    return lost, count


def _wholes(
    text: str, tensors: Mapping[str, Stored], state: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray, np.dtype]]:
    """(tensor, weights in steps of its scale, integer type), rounded to nearest even."""
    for name, (of, scales, zero, axis, block) in _rows(text).items():
        if of in state:
            array = np.asarray(decoded(state[of]), np.float32)
            parts = [tensors[scale].array.astype(np.float32) for scale in scales]
            scale = math.prod(parts[1:], start=parts[0])
            points = tensors[zero].array if zero else np.zeros(1, np.int8)
            scale, points = (_spread(p, array.shape, axis, block) for p in (scale, points))
            with np.errstate(all="ignore"):
                whole = np.rint(array / scale).astype(np.float64) + points.astype(np.float64)
            yield name, np.nan_to_num(whole), np.dtype(tensors[name].dtype)


def names_of(text: str) -> set[str]:
    """The tensors the metadata refers to.

    Raises:
      ProgramError: the metadata is damaged.
    """
    result: set[str] = set()
    for name, (_, scales, zero, _, _) in _rows(text).items():
        result.update((name, *scales, zero))
    return result - {""}


def _inside(whole: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Saturate like QuantizeLinear."""
    ends = np.iinfo(kind)
    return np.clip(whole, ends.min, ends.max).astype(kind)


def _spread(array: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    if array.size == 1:
        return array.reshape([1] * len(shape))
    axis = range(len(shape))[axis]
    if block:
        return np.take(np.repeat(array, block, axis), range(shape[axis]), axis)
    return array.reshape([-1 if k == axis else 1 for k in range(len(shape))])


def _rows(text: str) -> dict[str, tuple[str, list[str], str, int, int]]:
    try:
        rows: Iterable[tuple[str, Any]] = json.loads(text or "{}").items()
        return {
            str(name): (str(of), [str(s) for s in scales], str(zero), int(axis), int(block))
            for name, (of, scales, zero, axis, block) in rows
        }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProgramError(
            f"its ONNX graph: metadata {QUANTISED} is damaged ({error}). Compile the model again."
        ) from error
