"""The order of samples of several lengths: each minibatch has samples of one length."""

from collections.abc import Sequence

import numpy as np

from .permute import permuted

_PURPOSE = 0x6C656E67746873  # keeps the order of lengths apart from that of samples


class LengthOrder:
    """Which length a step has, and which of its samples; the same in bundles
    (kernels/device/lengths.py).

    Args:
      seed: of the run.
      sizes: (samples, samples of a minibatch) of each length.
      keep_last: minibatches may be partial.
    Attributes:
      counts: minibatches of each length in an epoch.
      steps: their sum.
    """

    def __init__(
        self, seed: int, sizes: Sequence[tuple[int, int]], keep_last: bool = False
    ) -> None:
        self._seed, self._sizes = seed, sizes
        self.counts = [-(-n // each) if keep_last else n // each for n, each in sizes]
        self.steps = sum(self.counts)
        self._shown = -1, np.empty(0, np.int8)  # an epoch, and the length of each of its steps

    def at(self, step: int) -> tuple[int, np.ndarray]:
        """(number of a step's length, its samples among those of the length, int64)."""
        epoch, at = divmod(step, self.steps)
        numbers = self._numbers(epoch)
        number = int(numbers[at])
        before, (n, minibatch) = int(np.count_nonzero(numbers[:at] == number)), self._sizes[number]
        positions = np.arange(before * minibatch, min((before + 1) * minibatch, n))
        return number, permuted(self._seed, epoch, positions, n)

    def _numbers(self, epoch: int) -> np.ndarray:
        """The number of the length of each step of an epoch."""
        if self._shown[0] != epoch:
            numbers = np.repeat(np.arange(len(self.counts), dtype=np.int8), self.counts)
            order = permuted(self._seed + _PURPOSE, epoch, np.arange(self.steps), self.steps)
            self._shown = epoch, numbers[order]
        return self._shown[1]
