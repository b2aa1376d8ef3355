"""8 bits in blocks of 64 with a scale: for model memory only, decoded before computation.

A block is 64 int8 and one byte, the biased exponent of a power of two: element = int8 * 2^(scale -
127). The scale is the smallest that fits the block's largest magnitude, so unchanged values keep
their bits when a block is written again, and a block of zeros is zero bytes. A block with a
non-finite element has scale 255 and reads as infinite. The last block is padded with zeros.
Kernels store with stochastic rounding; the codec rounds to nearest, and so does the format for
comparison (NEAREST). Source: Training Neural Networks with Low-Precision Model Memory (LPMM), 2023.
"""

import math
from typing import TYPE_CHECKING

from ..ir.storage import Format

if TYPE_CHECKING:
    import numpy as np

LENGTH = 64  # elements of a block
BITS = 23  # fraction bits before rounding
_INFINITE, _LARGEST = 0x7F800000, 0x7E0000  # bits: infinity; the mantissa of 127


class Blocks(Format):
    """Formats in blocks: a stored array is one-dimensional, with one element per block."""

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (-(-math.prod(shape) // self.block),)

    def encode(self, values: "np.ndarray") -> "np.ndarray":
        import numpy as np

        if values.dtype == self.dtype:
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            flat = np.asarray(values, np.float32).reshape(-1)
        whole = np.zeros((*self.stored_shape(flat.shape), LENGTH), np.float32)
        whole.reshape(-1)[: flat.size] = flat
        largest = (whole.view(np.uint32) & 0x7FFFFFFF).max(axis=1, initial=0).astype(np.int64)
        scale = (largest >> 23) - 6 + ((largest & 0x7FFFFF) > _LARGEST)
        scale = np.where(largest == 0, 0, np.maximum(scale, 1))
        out = np.empty((len(whole), LENGTH + 1), np.uint8)
        with np.errstate(invalid="ignore", over="ignore"):
            steps = np.ldexp(whole, (127 + BITS - scale)[:, None]).astype(np.int64)
        out[:, :LENGTH] = (steps + (1 << BITS - 1) >> BITS).astype(np.int8).view(np.uint8)
        out[:, LENGTH] = scale
        out[largest == 0] = 0
        out[largest >= _INFINITE, :LENGTH] = 1
        out[largest >= _INFINITE, LENGTH] = 255
        return out.reshape(-1).view(self.dtype)

    def decode(self, stored: "np.ndarray") -> "np.ndarray":
        import numpy as np

        parts = np.ascontiguousarray(stored).view(np.uint8).reshape(-1, LENGTH + 1)
        scale = (parts[:, LENGTH:].astype(np.uint32) << 23).view(np.float32)
        with np.errstate(invalid="ignore"):
            return (parts[:, :LENGTH].view(np.int8) * scale).reshape(-1)


# At worst, each of 64 terms of a sum is off by half a step; a step is at most 1/64 of the largest.
TOLERANCES = (0.0, 6e-2)
INT8 = Blocks("q8", 8, "V65", 65, LENGTH, floats=True, memory="int8", tolerances=TOLERANCES)
# Rounds to nearest, so small updates are lost: the baseline for stochastic rounding.
NEAREST = Blocks(
    "q8n", 9, "V64,V1", 65, LENGTH, floats=True, memory="int8-nearest", tolerances=TOLERANCES
)
