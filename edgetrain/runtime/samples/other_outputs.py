"""Collects the outputs after the first: the engine stores only the first one's predictions."""

from collections.abc import Sequence

import numpy as np

from ...formats import decoded


class OtherOutputs:
    """Copies outputs after each microbatch.

    Args:
      sources: the outputs of a microbatch, overwritten by the next.
      size: number of samples.
    Attributes:
      arrays: the outputs of all samples, float32.
    """

    def __init__(self, sources: Sequence[np.ndarray], size: int) -> None:
        self.arrays = [np.empty((size, *source.shape[1:]), np.float32) for source in sources]
        self._sources, self._size = sources, size
        self._done = self._begun = 0

    def begin(self, samples: int) -> None:
        """Copy the last microbatch, before the next one with `samples` samples, padding included.

        Call it with 0 after the last.
        """
        for source, array in zip(self._sources, self.arrays, strict=True):
            array[self._done : self._begun] = decoded(source[: self._begun - self._done])
        self._done, self._begun = self._begun, min(self._begun + samples, self._size)
