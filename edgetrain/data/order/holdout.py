"""Splits a source into training and held-out samples, on request only."""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from edgetrain.errors import DataError

from ..source import Source
from .permute import permuted


class Subset(Source):
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
        super().__init__(
            whole.name,
            n,
            whole.fields,
            classes=whole.classes,
            split=split,
            scale=whole.scale,
            limits=whole.limits,
        )
        self.ignore_index, self.allow_nonfinite = whole.ignore_index, whole.allow_nonfinite
        self.ignored, self.labels = dict(whole.ignored), whole.labels
        self._whole, self._start = whole, 0 if split == "test" else held
        self.held_out = held if split == "train" else 0

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        return self._whole.read(names, self._inner(indices), key, train)

    def keep_in(self, directory: Path) -> None:
        self._whole.keep_in(directory)

    def name_targets(self, names: Collection[str]) -> None:
        self._whole.name_targets(names)
        self.fields = self._whole.fields

    def adapt(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._whole.adapt(shapes)
        self.fields, self.note = self._whole.fields, self._whole.note

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        self._whole.scan(limits, ignore_index)  # in its own order, which is fastest for files

    def scan_numbers(self, names: Collection[str]) -> None:
        self._whole.scan_numbers(names)

    def where(self, index: int) -> str:
        return self._whole.where(int(self._inner(np.array([index]))[0]))

    def _inner(self, indices: np.ndarray) -> np.ndarray:
        return permuted(self._SEED, 0, indices + self._start, self._whole.n)
