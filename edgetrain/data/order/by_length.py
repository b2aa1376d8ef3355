"""The order of samples with several lengths: each minibatch has samples of one length."""

from collections.abc import Sequence

import numpy as np

from .permute import permuted

_PURPOSE = 0x6C656E67746873  # makes the order of lengths independent of the samples'


class LengthOrder:
    """The length and samples of each step; the same in bundles (kernels/device/lengths.py).

    Args:
      seed: the run's seed.
      sizes: (samples, samples per minibatch) of each length.
      keep_last: allow partial minibatches.
    Attributes:
      counts: minibatches per epoch for each length.
      steps: their sum.
    """

    def __init__(
        self, seed: int, sizes: Sequence[tuple[int, int]], keep_last: bool = False
    ) -> None:
        self._seed, self._sizes = seed, sizes
        self.counts = [-(-n // each) if keep_last else n // each for n, each in sizes]
        self.steps = sum(self.counts)
        self._shown = -1, np.empty(0, np.int8)  # an epoch, and the length index of its steps

    def at(self, step: int) -> tuple[int, np.ndarray]:
        """(index of the step's length, int64 indices of its samples among those of that length)."""
        epoch, position = divmod(step, self.steps)
        numbers = self._numbers(epoch)
        number = int(numbers[position])
        before, (n, minibatch) = (
            int(np.count_nonzero(numbers[:position] == number)),
            self._sizes[number],
        )
        positions = np.arange(before * minibatch, min((before + 1) * minibatch, n))
        return number, permuted(self._seed, epoch, positions, n)

    def _numbers(self, epoch: int) -> np.ndarray:
        """Index of the length of each step in an epoch."""
        if self._shown[0] != epoch:
            numbers = np.repeat(np.arange(len(self.counts), dtype=np.int8), self.counts)
            order = permuted(self._seed + _PURPOSE, epoch, np.arange(self.steps), self.steps)
            self._shown = epoch, numbers[order]
        return self._shown[1]
