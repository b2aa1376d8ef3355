"""Samples of different lengths, fitted to one of a Program's lengths."""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from edgetrain.errors import DataError

from ..checks.values import check_floats, check_integers
from ..source import Field, Source
from ..wrapped import Wrapped

LENGTHS = "lengths"  # the field with each sample's length
_AHEAD_NBYTES = 2**28  # of a field at this length: larger ones are only checked when used
_SCAN_NBYTES = 2**20


class Fit(NamedTuple):
    """How to fit a field to a length.

    Attributes:
      name: its name in the source; "": it is generated: the samples' lengths or, with `axes`, a
        mask of ones up to each sample's end.
      shape: sample shape at this length.
      axes: axes of `shape` that depend on the length.
      fill: padding value.
      exact: the size of these axes equals the length.
      cleared: replace the source's values after a sample's end by `fill`.
      pads: values that may be cut off.
      target: values are cut off only if they are `pads`.
      each: there is a target for each position.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    fill: int = 0
    exact: bool = True
    cleared: bool = False
    pads: tuple[int, ...] = (0,)
    target: bool = False
    each: bool = False

    def rest(self, rows: np.ndarray, axis: int, end: int) -> np.ndarray:
        """Whether rows [k, *shape] have values other than `pads` from `end` on, bool [k]."""
        behind = np.moveaxis(rows, axis + 1, 1)[:, end:]
        return (~np.isin(behind, self.pads)).reshape(len(rows), -1).max(axis=1, initial=False)


class Padded(Wrapped):
    """A source fitted to one length: fields are cut or padded to it.

    Args:
      whole: a source with arrays as long as its longest sample.
      lengths: lengths of all its samples, int64.
      indices: samples of this length; indices remain those of `whole`.
      fits: by field.
      width: length of the inputs' arrays.
    """

    def __init__(
        self,
        whole: Source,
        lengths: np.ndarray,
        indices: np.ndarray,
        fits: Mapping[str, Fit],
        width: int,
    ) -> None:
        self._shapes = {
            name: laid_out(whole.fields[fit.name].shape, fit)
            for name, fit in fits.items()
            if fit.name
        }
        fields = {name: self._field(whole, name, fit) for name, fit in fits.items()}
        own = {fit.name: name for name, fit in fits.items() if fit.name}
        super().__init__(whole)
        self.fields = fields
        self.scale = {own[k]: scale for k, scale in whole.scale.items() if k in own}
        self.limits = {own[k]: limit for k, limit in whole.limits.items() if k in own}
        self._lengths, self._indices, self._fits, self._width = lengths, indices, fits, width

    def _field(self, whole: Source, name: str, fit: Fit) -> Field:
        if not fit.name:
            return Field(fit.shape, np.dtype(np.int64))
        result = whole.fields[fit.name]
        if not fit.axes:
            return result
        return result._replace(shape=fit.shape) if self._shapes[name] is not None else result

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        asked = {name: self._fits[name] for name in names}
        inner = tuple(fit.name for fit in asked.values() if fit.name)
        rows = self._whole.read(inner, indices, key, train) if inner else {}
        ends = self._lengths[indices]
        return {
            name: self._fitted(name, rows[fit.name], ends, indices)
            if fit.name
            else _made(fit, ends)
            for name, fit in asked.items()
        }

    def _fitted(
        self, name: str, rows: np.ndarray, ends: np.ndarray, indices: np.ndarray
    ) -> np.ndarray:
        """Rows [k, ...] of a field, fitted to this length."""
        fit, shape = self._fits[name], self._shapes[name]
        if shape is None or not fit.axes:
            return rows
        rows = rows.reshape(len(rows), *shape)
        if fit.fill and rows.dtype.kind in "bui":
            rows = rows.astype(np.int64)
        out = np.full((len(rows), *fit.shape), fit.fill, rows.dtype)
        kept = tuple(slice(min(a, b)) for a, b in zip(shape, fit.shape, strict=True))
        out[(slice(None), *kept)] = rows[(slice(None), *kept)]
        if fit.target or not fit.exact:
            self._check_cut(name, rows, indices)
        for axis in fit.axes if fit.cleared else ():
            np.moveaxis(out, axis + 1, 1)[np.arange(fit.shape[axis]) >= ends[:, None]] = fit.fill
        return out

    def _check_cut(self, name: str, rows: np.ndarray, indices: np.ndarray) -> None:
        """Refuse a sample with more values than fit in this length."""
        fit = self._fits[name]
        for axis in fit.axes:
            end = self._width if fit.exact else fit.shape[axis]
            bad = fit.rest(rows, axis, end)
            if bad.any():
                row = int(np.argmax(bad))
                label = self.sample_label(name, indices)(row)
                if fit.exact:
                    raise too_long(label, end, fit)
                raise DataError(
                    f"{label}: more than {end} values, which "
                    f"is all that length {self._lengths[indices[row]]} has room for. Compile with "
                    "larger lengths."
                )

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        for name, limit in limits.items():
            nbytes = 8 * self.fields[name].size
            if len(self._indices) * nbytes > _AHEAD_NBYTES:
                continue
            ignored = ignore_index if name == "y" else self.ignored.get(name)
            step = max(1, _SCAN_NBYTES // max(1, nbytes))
            for start in range(0, len(self._indices), step):
                part = self._indices[start : start + step]
                result = self.read((name,), part, (0, 0), False)[name]
                label, classes = self.sample_label(name, part), name == "y" or ignored is not None
                check_integers(result, result.dtype, limit, ignored, label, classes)

    def scan_numbers(self, names: Collection[str]) -> None:
        for name in names:
            nbytes = max(1, 8 * self.fields[name].size)
            if not self._fits[name].name or len(self._indices) * nbytes > _AHEAD_NBYTES // 4:
                continue
            step = max(1, _SCAN_NBYTES // nbytes)
            for start in range(0, len(self._indices), step):
                part = self._indices[start : start + step]
                result = self.read((name,), part, (0, 0), False)[name]
                if result.dtype.kind == "f":
                    check_floats(result, result, self.sample_label(name, part))

    def name_targets(self, names: Collection[str]) -> None:
        """Do nothing: targets were named before the fields were fitted."""

    def adapt(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Do nothing: fields are fitted to the Program already."""


def _made(fit: Fit, ends: np.ndarray) -> np.ndarray:
    """Generated lengths, or a mask, [k, *shape]."""
    if not fit.axes:
        return ends.reshape(-1, *fit.shape)
    places = np.arange(fit.shape[fit.axes[0]]) < ends[:, None]
    return places.reshape(len(ends), *fit.shape).astype(np.int64)


def too_long(label: str, end: int, fit: Fit) -> DataError:
    """The error for targets after the end of a sample."""
    move = f", or set the rest to {fit.pads[0]}, which the loss ignores" if fit.pads else ""
    return DataError(
        f"{label}: targets for more than the sample's {end} positions. Cut them{move}."
    )


def too_short(label: str, count: int, end: int, fit: Fit) -> DataError:
    """The error for positions without a target."""
    move = f"Fill up with {fit.pads[0]}, which the loss ignores." if fit.pads else "Correct them."
    return DataError(
        f"{label}: targets for {count} positions; expected {end}, as many as the sample has. {move}"
    )


def laid_out(shape: tuple[int, ...], fit: Fit) -> tuple[int, ...] | None:
    """The source's sample shape with the axes of `fit.shape`; axes of size 1 may be missing or
    added. None if it doesn't fit."""
    wide = [k for k, size in enumerate(fit.shape) if k in fit.axes or size != 1]
    result = shape if len(shape) == len(fit.shape) else None
    sizes = [size for size in shape if size != 1]
    if result is None and len(sizes) == len(wide):
        own = dict(zip(wide, sizes, strict=True))
        result = tuple(own.get(k, 1) for k in range(len(fit.shape)))
    if result is None or math.prod(result) != math.prod(shape):
        return None
    same = all(result[k] == size for k, size in enumerate(fit.shape) if k not in fit.axes)
    return result if same else None
