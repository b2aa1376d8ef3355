"""How values are stored: what every other room asks instead of knowing it.

A new format is a file with an object of `Format`, imported here, and its loads and stores in
kernels/words/prim.py.
"""

from typing import TYPE_CHECKING

from ..ir.storage import FORMATS, Format
from .fp32 import FP32

from .fp16 import FP16  # isort: skip - after what is there without being asked for
from .integers import SUMS, WHOLE

if TYPE_CHECKING:
    import numpy as np

# By the user's name: what the values of a model may be stored as; the first is the default.
PRECISIONS: dict[str, Format] = {f.precision: f for f in FORMATS.values() if f.precision}
FLOATS = tuple(name for name, format in FORMATS.items() if format.precision)


def of_dtype(dtype: "np.dtype") -> Format:
    """The format of arrays in memory of this type."""
    return next(format for format in FORMATS.values() if format.dtype == dtype)


def decoded(array: "np.ndarray") -> "np.ndarray":
    """An array of a run's memory as numbers of numpy's."""
    return of_dtype(array.dtype).decode(array)


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
    "decoded",
    "narrowest",
    "of_dtype",
]
