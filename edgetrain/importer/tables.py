"""Recognises tables computed from a formula (masks, sines and cosines of positions, slopes), which
are never trained.

A file without torch's signature does not say which arrays were parameters, so their values decide.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

# Masks set hidden scores to this or below; weights are never that small.
HIDDEN = -1e4

_LOOKED_AT = 64  # positions, and columns; a few are enough to rule out a formula
_POSITIONS = 5  # fewer equations can't tell a wave from learned numbers
_PIECE = 2**16  # numbers per piece
_TOLERANCE = 3e-3  # for angles in float32 and values in float16


def is_table(array: np.ndarray) -> bool:
    """Whether at least two dimensions are larger than 1."""
    return sum(d > 1 for d in array.shape) > 1


def is_hiding(array: np.ndarray) -> bool:
    """Whether adding it masks something: a value is not finite or far below 0."""
    return not np.all(np.isfinite(array)) or bool(np.min(array, initial=0.0) <= HIDDEN)


def is_formula(array: np.ndarray) -> bool:
    """Whether it is a mask, sinusoids of positions, a line, or rows of sines and cosines."""
    if is_hiding(array):
        return True
    if not is_table(array) or np.all(array == array.flat[0]):
        return False
    sample = array.flat[: _LOOKED_AT * _LOOKED_AT]
    if len(np.unique(sample)) == 2 and len(np.unique(array)) == 2:
        return True
    with np.errstate(all="ignore"):
        return _rows_of_waves(array) or any(_waves(array, axis) for axis in range(array.ndim))


def is_counting(array: np.ndarray) -> bool:
    """Whether it is one number, or one among zeros: a product with it sums, averages or picks."""
    result = None
    for numbers in _pieces(array):
        nonzero = numbers[numbers != 0]
        if result is None and nonzero.size:
            result = nonzero[0]
        if np.any(nonzero != result):
            return False
    return array.size > 1 and result is not None


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """All numbers, in pieces: weights may be larger than the free memory."""
    if array.size:
        flags: Any = ["external_loop", "buffered"]
        yield from np.nditer(array, flags, buffersize=_PIECE)


def is_progression(array: np.ndarray) -> bool:
    """Whether numbers form a geometric or arithmetic progression, or there is only one.

    Frequencies of position and time embeddings are like that.
    """
    numbers = array.ravel().astype(np.float64)
    if numbers.size < 2 or np.all(numbers == numbers[0]):
        return numbers.size < 2
    if numbers.size < 3:
        return False
    steps = np.diff(numbers)
    if np.allclose(steps, steps[0], rtol=_TOLERANCE, atol=0):
        return True
    if not np.all(numbers):
        return False
    factors = numbers[1:] / numbers[:-1]
    return bool(np.allclose(factors, factors[0], rtol=_TOLERANCE, atol=0))


def _waves(array: np.ndarray, axis: int) -> bool:
    """Whether every column is v[t + 1] + v[t - 1] = 2 cos(f) v[t]: a sinusoid, or a line."""
    if array.shape[axis] < _POSITIONS:
        return False
    columns = np.moveaxis(array, axis, 0)[:_LOOKED_AT]
    columns = columns.reshape(len(columns), -1)
    columns = columns[:, :: max(1, columns.shape[1] // _LOOKED_AT)].astype(np.float64)
    here, around = columns[1:-1], columns[2:] + columns[:-2]
    square = np.sum(here * here, 0)
    factor = np.sum(here * around, 0) / np.where(square, square, 1.0)
    error = np.sum((around - factor * here) ** 2, 0)
    close = error <= _TOLERANCE**2 * np.sum(columns * columns, 0)
    return bool(np.all(close & (np.abs(factor) <= 2 + _TOLERANCE)))


def _rows_of_waves(array: np.ndarray) -> bool:
    """Whether each row consists of sin and cos pairs, in any order; a row may be all zeros."""
    rows = array.reshape(-1, array.shape[-1])[:_LOOKED_AT].astype(np.float64)
    width = rows.shape[1]
    squares = np.sum(rows * rows, 1)
    fitting = np.abs(squares - width / 2) <= _TOLERANCE * width
    zero = squares == 0
    full = np.sum(fitting) > 1 and bool(np.all(fitting | zero))
    return full and width >= 8 and bool(np.max(np.abs(rows)) <= 1 + _TOLERANCE)
