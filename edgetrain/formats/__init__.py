"""Storage formats: other rooms ask these objects instead of knowing formats themselves.

To add a format, add a file with an object of `Format` and import it here: kernels' loads and
stores, options, files and parity follow from it. Numbers that numpy lacks have formulas (coded.py).
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

# Formats for the values of a model, by the users' name, in order of their numbers; the first is the
# default.
PRECISIONS: dict[str, Format] = {
    format.precision: format
    for format in sorted(FORMATS.values(), key=lambda format: format.number)
    if format.precision
}
FLOATS = tuple(format.name for format in PRECISIONS.values())
SHIPPED = tuple(format.name for format in PRECISIONS.values() if format.shipped)
# Formats for weights, optimizer state and gradient accumulators.
MEMORIES: dict[str, Format] = PRECISIONS | {
    format.memory: format for format in FORMATS.values() if format.memory
}
BLOCKED = tuple(format.name for format in MEMORIES.values() if format.block > 1)
# Formats for values saved for backward.
SAVED: dict[str, Format] = {n: format for n, format in MEMORIES.items() if format.block > 1}
# Formats for untrained weights, which are mapped from the Program's file.
FROZEN: dict[str, Format] = PRECISIONS | {"int8": G8, "int4": G4}
GROUPED = (G8.name, G4.name)


def frozen_as(memory: str) -> str:
    """The users' name of the format of frozen weights, if trained ones are stored as `memory`."""
    return memory if memory in FROZEN else "int8"


@functools.cache
def of_dtype(dtype: "np.dtype") -> Format:
    """The format whose stored arrays have this type."""
    return next(format for format in FORMATS.values() if format.dtype == dtype)


def coded(array: "np.ndarray") -> bool:
    """Whether numpy lacks the numbers of this array."""
    return array.dtype.kind == "V"


def decoded(array: "np.ndarray", shape: tuple[int, ...] | None = None) -> "np.ndarray":
    """A stored array as numbers in a numpy type.

    Args:
      shape: of the numbers; without it, numbers in blocks are returned as one row that fills the
        last block.
    """
    if not coded(array):
        return array
    format = of_dtype(array.dtype)
    numbers = format.decode(array)
    count = None if shape is None else math.prod(shape)
    if count is None or not count <= numbers.size < count + format.block:
        return numbers  # of another shape: the caller's shape check reports it
    return numbers.reshape(-1)[:count].reshape(shape)


def from_file(array: "np.ndarray", format: Format) -> "np.ndarray":
    """Convert an array from a container; for a format without a code, its last axis is bytes."""
    rows = array.dtype.str == "|u1" and array.shape[-1:] == (format.block_nbytes,)
    if rows and format.dtype.kind == "V":
        return array.reshape(-1).view(format.dtype).reshape(array.shape[:-1])
    return array


def holding(number: float, size: float = math.inf) -> str:
    """Precisions whose range includes a number, as words; "" if there are none.

    Args:
      size: numbers of this size must keep at least eight bits.
    """
    fine = size / 2**8
    names = [n for n, kind in PRECISIONS.items() if kind.largest >= number and kind.least <= fine]
    return " or ".join([", ".join(names[:-1]), *names[-1:]]).removeprefix(" or ")


def narrowest() -> Format:
    """The precision with the fewest bytes per element."""
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
    "frozen_as",
    "holding",
    "narrowest",
    "of_dtype",
]
