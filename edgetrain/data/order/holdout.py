"""Splits a source into training and held-out samples, on request only."""

import numpy as np

from edgetrain.errors import DataError

from ..source import Source
from ..wrapped import Wrapped
from .permute import permuted


class Subset(Wrapped):
    """Part of a source: the start or the rest of a fixed shuffled order.

    It depends only on the number of samples, and takes no memory.

    Args:
      split: "test": the held-out samples; "train": the others.
      fraction: fraction to hold out; at least one sample.
    Raises:
      DataError: the fraction is not between 0 and 1, or there are fewer than two samples.
    """

    _SEED = 0x73706C6974  # never change it: that would move samples between the splits

    def __init__(self, whole: Source, split: str, fraction: float) -> None:
        if not 0.0 < fraction < 1.0 or whole.n < 2:
            raise DataError(
                f"{whole.name}: cannot hold out {fraction:g} of {whole.n} samples; expected a "
                "fraction between 0 and 1, and at least two samples. Use more data."
            )
        held = min(max(1, round(whole.n * fraction)), whole.n - 1)
        n = held if split == "test" else whole.n - held
        super().__init__(whole)
        self.n, self.split, self.splits = n, split, (split,)
        self._start = 0 if split == "test" else held
        self.held_out = held if split == "train" else 0

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        return self._whole.read(names, self._inner(indices), key, train)

    def where(self, index: int) -> str:
        return self._whole.where(int(self._inner(np.array([index]))[0]))

    def _inner(self, indices: np.ndarray) -> np.ndarray:
        return permuted(self._SEED, 0, indices + self._start, self._whole.n)
