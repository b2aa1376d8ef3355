"""The base class of sources that change the samples of another source."""

from collections.abc import Collection, Mapping
from copy import copy
from pathlib import Path

import numpy as np

from .source import Source


class Wrapped(Source):
    """A source that reads another one.

    Attributes and methods are those of the other source; a subclass replaces what differs.

    Args:
      whole: the other source.
    """

    def __init__(self, whole: Source) -> None:
        super().__init__(
            whole.name,
            whole.n,
            whole.fields,
            classes=whole.classes,
            split=whole.split,
            scale=whole.scale,
            limits=whole.limits,
        )
        self.splits, self.held_out, self.note = whole.splits, whole.held_out, whole.note
        self.labels, self.rate = whole.labels, whole.rate
        self.ignore_index, self.ignored = whole.ignore_index, dict(whole.ignored)
        self.allow_nonfinite, self.pictures = whole.allow_nonfinite, whole.pictures
        self._whole = whole

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        return self._whole.read(names, indices, key, train)

    def check_limits(
        self,
        limits: Mapping[str, int],
        ignore_index: int | None = None,
        ignored: Mapping[str, int] | None = None,
    ) -> None:
        super().check_limits(limits, ignore_index, ignored)
        if isinstance(self._whole, Wrapped):
            self._whole = copy(self._whole)  # another Trainer may read it, with another loss
            self._whole.check_limits({}, ignore_index, ignored)

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        self._whole.scan(limits, ignore_index)

    def scan_numbers(self, names: Collection[str]) -> None:
        self._whole.scan_numbers(names)

    def where(self, index: int) -> str:
        return self._whole.where(index)

    def keep_in(self, directory: Path) -> None:
        self._whole.keep_in(directory)

    def name_targets(self, names: Collection[str]) -> None:
        self._whole.name_targets(names)
        self.fields = self._whole.fields

    def adapt(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._whole.adapt(shapes)
        self.fields, self.note = self._whole.fields, self._whole.note
