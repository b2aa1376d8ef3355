"""Refuses values that would be a bad index or spoil a sum."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from edgetrain.errors import DataError

Label = Callable[[int], str]  # row of the chunk -> "source: sample: field" for a message
_MOVE = "Correct it, or leave the sample out."


def check_known(source: str, name: str, fields: Mapping[str, object]) -> None:
    """Raises DataError unless `name` is one of `fields`."""
    if name not in fields:
        raise DataError(
            f"{source}: no field {name!r}; found {', '.join(sorted(fields))}. "
            "Name the arrays after the model's inputs (or 'x' if there is one), the target 'y'."
        )


def check_integers(
    rows: np.ndarray,
    dtype: np.dtype,
    limit: int | None,
    ignored: int | None,
    label: Label,
    classes: bool = False,
) -> None:
    """Check that values are whole numbers in [0, limit) or `ignored`, and fit `dtype`.

    Args:
      classes: they are targets, which may be numbered from 1.
    Raises:
      DataError: names the first bad sample.
    """
    good = np.ones(rows.shape, bool)
    if rows.dtype.kind == "f":
        good &= np.isfinite(rows) & (np.rint(rows) == rows)
        _raise_first(rows, good, "expected a whole number", label)
    low, high = (0, limit - 1) if limit is not None else (None, None)
    if low is None and dtype.kind != "f":
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if low is None or high is None:
        return
    if rows.size and low <= rows.min().item() and rows.max().item() <= high:
        return
    good = (rows >= low) & (rows <= high)
    if ignored is not None:
        good |= rows == ignored
    from_1 = classes and rows.size and rows.min() >= 1 and rows.max() == high + 1
    move = "If labels start at 1, subtract 1 from each." if from_1 else _MOVE
    _raise_first(rows, good, f"expected a whole number from {low} to {high}", label, move)


def check_floats(
    rows: np.ndarray, stored: np.ndarray, label: Label, storage: tuple[str, float] | None = None
) -> None:
    """Check that stored values are finite.

    Args:
      rows: the values before the cast to the buffer's dtype.
      storage: name and largest number of a format that numpy lacks; `stored` is decoded from it.
    Raises:
      DataError: names the first bad sample.
    """
    with np.errstate(invalid="ignore"):
        if not stored.size or (math.isfinite(stored.min()) and math.isfinite(stored.max())):
            return
    good = np.isfinite(stored).reshape(rows.shape)
    kind, limit = storage or (stored.dtype.name, float(np.finfo(stored.dtype).max))
    wanted = f"expected a finite number of at most {limit:g} ({kind})"
    _raise_first(rows, good, wanted, label)


def _raise_first(
    rows: np.ndarray, good: np.ndarray, wanted: str, label: Label, move: str = _MOVE
) -> None:
    if good.all():
        return
    flat = int(np.argmin(good))
    row = flat // max(1, rows[0].size)
    value = rows.reshape(-1)[flat]
    raise DataError(f"{label(row)}: value {value}; {wanted}. {move}")
