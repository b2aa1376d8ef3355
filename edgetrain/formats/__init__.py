"""How values are stored: what every other room asks instead of knowing it.

A new format is a file with an object of `Format`, imported here, and its loads and stores in
kernels/words/prim.py.
"""

from typing import TYPE_CHECKING

from ..ir.storage import FORMATS, Format
from .fp16 import FP16
from .fp32 import FP32
from .integers import SUMS, WHOLE

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


def of_dtype(dtype: "np.dtype") -> Format:
    """The format of arrays in memory of this type."""
    return next(format for format in FORMATS.values() if format.dtype == dtype)


def coded(array: "np.ndarray") -> bool:
    """Whether numpy lacks the numbers of this array."""
    return array.dtype.kind == "V"


def decoded(array: "np.ndarray") -> "np.ndarray":
    """An array of a run's memory as numbers of numpy's."""
    return of_dtype(array.dtype).decode(array) if coded(array) else array


def narrowest() -> Format:
    """What takes the fewest bytes."""
    return min(PRECISIONS.values(), key=lambda format: format.nbytes(1024))


__all__ = [
    "FLOATS",
    "FORMATS",
    "FP16",
    "FP32",
    "PRECISIONS",
    "SUMS",
    "WHOLE",
    "Format",
    "coded",
    "decoded",
    "narrowest",
    "of_dtype",
]
