"""How values are stored: what every other room asks instead of knowing it.

A new format is a file with an object of `Format`, imported here: kernels' loads and stores,
options, files and parity follow from it. Numbers that numpy lacks have formulas (coded.py).
"""

import functools
import math
from typing import TYPE_CHECKING

from ..ir.storage import FORMATS, Format
from .bf16 import BF16
from .blocks import INT8, Blocks
from .fp16 import FP16
from .fp32 import FP32
from .groups import G4, G8
from .integers import POSITIONS, SUMS, WHOLE

if TYPE_CHECKING:
    import numpy as np

# By the user's name, in order of their numbers: what the values of a model may be stored as; the
# first is the default.
PRECISIONS: dict[str, Format] = {
    format.precision: format
    for format in sorted(FORMATS.values(), key=lambda format: format.number)
    if format.precision
}
FLOATS = tuple(format.name for format in PRECISIONS.values())
SHIPPED = tuple(format.name for format in PRECISIONS.values() if format.shipped)
# The same of weights, optimizer state and gradient accumulators.
MEMORIES: dict[str, Format] = PRECISIONS | {
    format.memory: format for format in FORMATS.values() if format.memory
}
BLOCKED = tuple(format.name for format in MEMORIES.values() if format.block > 1)
# Of values saved for backward.
SAVED: dict[str, Format] = {n: format for n, format in MEMORIES.items() if format.block > 1}
# Of weights that are not trained, which are mapped from the Program's file.
FROZEN: dict[str, Format] = PRECISIONS | {"int8": G8, "int4": G4}
GROUPED = (G8.name, G4.name)


@functools.cache
def of_dtype(dtype: "np.dtype") -> Format:
    """The format of arrays in memory of this type."""
    return next(format for format in FORMATS.values() if format.dtype == dtype)


def coded(array: "np.ndarray") -> bool:
    """Whether numpy lacks the numbers of this array."""
    return array.dtype.kind == "V"


def decoded(array: "np.ndarray", shape: tuple[int, ...] | None = None) -> "np.ndarray":
    """An array of a run's memory as numbers of numpy's.

    Args:
      shape: of the numbers; without it, those of blocks are one row that fills the last block.
    """
    if not coded(array):
        return array
    format = of_dtype(array.dtype)
    numbers = format.decode(array)
    count = None if shape is None else math.prod(shape)
    if count is None or not count <= numbers.size < count + format.block:
        return numbers  # of another shape: whoever compares shapes says so
    return numbers.reshape(-1)[:count].reshape(shape)


def from_file(array: "np.ndarray", format: Format) -> "np.ndarray":
    """An array as containers hold it; of a format without a code, bytes are its last axis."""
    rows = array.dtype.str == "|u1" and array.shape[-1:] == (format.block_nbytes,)
    if rows and format.dtype.kind == "V":
        return array.reshape(-1).view(format.dtype).reshape(array.shape[:-1])
    return array


def narrowest() -> Format:
    """What takes the fewest bytes."""
    return min(PRECISIONS.values(), key=lambda format: format.nbytes(1024))


__all__ = [
    "BF16",
    "BLOCKED",
    "FLOATS",
    "FORMATS",
    "FP16",
    "FP32",
    "FROZEN",
    "GROUPED",
    "INT8",
    "MEMORIES",
    "POSITIONS",
    "PRECISIONS",
    "SAVED",
    "SHIPPED",
    "SUMS",
    "WHOLE",
    "Blocks",
    "Format",
    "coded",
    "decoded",
    "from_file",
    "narrowest",
    "of_dtype",
]
