"""Integers of 8 or 4 bits in groups of 64 with a scale: for frozen weights, never written.

Elements are in the order of the array, so groups run along its last axis, the inputs of a torch
layer. A group is its integers, then the scale as fp16: element = integer * scale, where the scale
is the largest magnitude over 127 or 7. With 4 bits, byte j of a group has element j in its lower
half and element j + 32 in its upper half, each plus 8. A group with a non-finite element has an
infinite scale. The last group is padded with zeros.
"""

import math
from typing import TYPE_CHECKING

from ..ir.storage import Format

if TYPE_CHECKING:
    import numpy as np

LENGTH = 64  # elements of a group
HALF = LENGTH // 2


class Groups(Format):
    """Formats in groups: a stored array is one-dimensional, with one element per group."""

    @property
    def most(self) -> int:
        """The largest integer."""
        return 127 if self.block_nbytes > LENGTH else 7

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (-(-math.prod(shape) // self.block),)

    def encode(self, values: "np.ndarray") -> "np.ndarray":
        import numpy as np

        if values.dtype == self.dtype:
            return values
        flat = np.asarray(values).reshape(-1)
        count = self.stored_shape(flat.shape)[0]
        out = np.empty((count, self.block_nbytes), np.uint8)
        step = 1 << 14  # groups at a time, to avoid a second copy of a large weight
        for start in range(0, count, step):
            stop = min(count, start + step)
            part = np.zeros((stop - start, LENGTH), np.float32)
            given = flat[start * LENGTH : stop * LENGTH]
            with np.errstate(over="ignore", invalid="ignore"):
                part.reshape(-1)[: given.size] = given
            out[start:stop] = self._encoded(part)
        return out.reshape(-1).view(self.dtype)

    def _encoded(self, part: "np.ndarray") -> "np.ndarray":
        """Bytes of groups, from float32 [groups, LENGTH]."""
        import numpy as np

        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            largest = np.abs(part).max(axis=1)
            scale = (largest / np.float32(self.most)).astype(np.float16)
            scale[~np.isfinite(largest)] = np.inf
            steps = np.rint(part / scale.astype(np.float32)[:, None])
        steps = np.where(np.isfinite(steps), steps, 0)
        numbers = np.clip(steps, -self.most, self.most).astype(np.int8)
        numbers[~np.isfinite(scale)] = 1
        if self.most < 127:
            numbers = (numbers[:, :HALF] + 8) | ((numbers[:, HALF:] + 8) << 4)
        return np.concatenate([numbers.view(np.uint8), scale[:, None].view(np.uint8)], axis=1)

    def decode(self, stored: "np.ndarray") -> "np.ndarray":
        import numpy as np

        parts = np.ascontiguousarray(stored).view(np.uint8).reshape(-1, self.block_nbytes)
        scale = np.ascontiguousarray(parts[:, -2:]).view(np.float16).astype(np.float32)
        if self.most == 127:
            numbers = np.ascontiguousarray(parts[:, :LENGTH]).view(np.int8)
        else:
            halves = parts[:, :HALF]
            numbers = np.concatenate([halves & 15, halves >> 4], axis=1).astype(np.int8) - 8
        return (numbers * scale).reshape(-1)


# An element is off by up to half a step; a step is 1/127 or 1/7 of its group's largest magnitude.
G8 = Groups("g8", 10, "V66", LENGTH + 2, LENGTH, floats=True, tolerances=(0.0, 2e-2))
G4 = Groups("g4", 11, "V34", HALF + 2, LENGTH, floats=True, tolerances=(0.0, 2e-1))
