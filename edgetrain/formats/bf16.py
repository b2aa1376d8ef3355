"""bfloat16: the upper half of a float32, with its range and 8 bits of mantissa."""

from typing import TYPE_CHECKING

from ..ir.storage import Format

if TYPE_CHECKING:
    import numpy as np


class BFloat16(Format):
    """numpy has no such numbers: arrays hold their two bytes."""

    def encode(self, values: "np.ndarray") -> "np.ndarray":
        import numpy as np

        if values.dtype == self.dtype:
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        nearest = bits + (0x7FFF + (bits >> 16 & 1)) >> 16
        nearest = np.where((bits & 0x7FFFFFFF) > 0x7F800000, bits >> 16 | 0x40, nearest)
        return nearest.astype(np.uint16).view(self.dtype).reshape(values.shape)

    def decode(self, stored: "np.ndarray") -> "np.ndarray":
        import numpy as np

        halves = np.ascontiguousarray(stored).view(np.uint16)
        return (halves.astype(np.uint32) << 16).view(np.float32).reshape(stored.shape)


BF16 = BFloat16("bf16", 7, "V2", 2, floats=True, precision="bf16", tolerances=(5e-2, 1.5e-1))
