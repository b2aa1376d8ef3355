"""Data that is arrays: of one name each, or with a name for each split."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgetrain.errors import DataError
from edgetrain.units.wording import listed

from ..rows import ArrayRows, Rows, is_array
from ..source import BYTES, Options, Source
from .row_source import SPLITS, VALIDATION, RowsSource, Splits

_SCAN_ROWS = 2**16
_COUNTED_NBYTES = 2**30  # targets that take more are not counted
_IGNORED = -100  # torch's default of ignore_index


def plain_rows(
    name: str,
    rows: Mapping[str, Rows],
    split: str,
    target: str | None = None,
    words: Callable[[], tuple[str, ...]] | None = None,
) -> RowsSource:
    """A source made from arrays; their types determine their meaning.

    u8 arrays other than "y" and sample weights "w" (one number each) are scaled to [0, 1] for a
    model with float inputs. Floats are not changed; other integers are token ids. A "y" with one
    integer per sample is a class.

    Raises:
      DataError: no inputs, no "y", different lengths, or values that are not numbers.
    """
    rows, labels = dict(rows), None
    if target is not None and "y" not in rows and target in rows:
        rows["y"] = rows[target]
    if "y" in rows and _is_text(rows["y"]):
        from .labels import LabelRows, names_of

        labels = names_of(rows["y"], name) if words is None else words()
        rows["y"] = LabelRows(rows["y"], labels, name)
    _check_rows(name, rows)
    scale = {
        key: BYTES
        for key, part in rows.items()
        if key != "y"
        and part.dtype == np.uint8
        and not (key == "w" and part.shape[1:] in ((), (1,)))
    }
    classes = None if labels is None else len(labels)
    if "y" in rows and labels is None:
        classes = _count_classes(rows["y"])
    made = RowsSource(name, rows, split=split, classes=classes, scale=scale)
    made.labels = labels
    return made


def splits_of(
    name: str, rows: Mapping[str, Callable[[], Rows]], options: Options | None = None
) -> Splits:
    """Find the splits by array name: x_train, y_train, x_test, ... or just x, y.

    If there is no _test, then _val, _valid or _validation is the test split.

    Args:
      rows: functions by array name, called when the split is opened.
    Raises:
      DataError: as in `plain_rows`.
    """

    target = options.target if options else None

    def words() -> tuple[str, ...]:
        from .labels import names_of

        return names_of(rows["y_train"](), name)

    def opened(suffix: str, split: str) -> Callable[[], Source]:
        chosen = {key.removesuffix(suffix): rows[key] for key in rows if key.endswith(suffix)}
        known = words if split == "test" and "y_train" in rows else None
        return lambda: plain_rows(
            name, {key: make() for key, make in chosen.items()}, split, target, known
        )

    rows = _with_test(rows)
    suffixes = {part for key in rows for part in ("_train", "_test") if key.endswith(part)}
    if "_train" in suffixes:
        return {split: opened(f"_{split}", split) for split in SPLITS if f"_{split}" in suffixes}
    return {"train": opened("", "train")}


def _with_test(rows: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same names, with a validation split renamed to test."""
    held = next((s for s in VALIDATION if any(key.endswith(f"_{s}") for key in rows)), None)
    if held is None or any(key.endswith("_test") for key in rows):
        return rows
    end = f"_{held}"
    return {f"{k.removesuffix(end)}_test" if k.endswith(end) else k: rows[k] for k in rows}


def array_splits(data: object, options: Options | None = None) -> Splits:
    """The splits of (x, y), of (x, y, w) with sample weights, of x alone, or of a dict of arrays.

    Names in a dict are as in an npz file. x and y may also be dicts: of inputs, and of targets by
    output name.

    Raises:
      DataError: another type, or as in `plain_rows`.
    """
    data = _by_name(data)
    if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        raise DataError(
            f"data of type {type(data).__name__}: expected a string such as 'npz:FILE', a Source, "
            "an array x, (x, y) or a dict of arrays."
        )
    try:
        arrays = {key: _array(key, value) for key, value in data.items()}
    except ValueError as error:
        raise DataError(f"arrays: {error}. Pass arrays of numbers.") from None

    def rows(array: np.ndarray) -> Callable[[], Rows]:
        return lambda: ArrayRows(array)

    return splits_of("arrays", {key: rows(array) for key, array in arrays.items()}, options)


def _by_name(data: Any) -> Any:
    """An array, or a tuple of up to three, by name; other data as it is."""
    if is_array(data):
        return {"x": data}
    if not isinstance(data, tuple) or not 1 <= len(data) <= 3:
        return data
    result: dict[Any, Any] = {}
    for name, part in zip(("x", "y", "w"), data, strict=False):
        named = part if isinstance(part, Mapping) else {} if part is None else {name: part}
        if twice := result.keys() & named.keys():
            raise DataError(
                f"arrays: {min(map(str, twice))!r} is among the inputs and the targets. Rename one."
            )
        result |= named
    return result


def _array(name: str, value: object) -> np.ndarray:
    """An array of numbers or strings."""
    if hasattr(value, "detach"):
        from ..tensors import as_array

        return as_array(name, value)
    if hasattr(value, "filled"):
        from ..tensors import check_mask

        check_mask(f"array {name!r}", value)
    array = np.asarray(value)
    if array.dtype.kind == "O" and all(isinstance(item, str) for item in array.reshape(-1)):
        array = array.astype(str)
    return array


def _is_text(rows: Rows) -> bool:
    """Whether these are strings, one per sample."""
    return rows.dtype.kind == "U" and rows.shape[1:] in ((), (1,))


def _check_rows(name: str, rows: Mapping[str, Rows]) -> None:
    if not {*rows} - {"y"}:
        result = f"arrays {listed(sorted(rows))}" if rows else "no arrays"
        raise DataError(
            f"{name}: found {result}; expected 'x' (or several "
            "inputs by name) and 'y' (or targets by the names of their outputs), or the same with "
            "_train and _test. Rename them, or say which input is the target (--target-input x)."
        )
    for key, part in rows.items():
        if part.dtype.kind not in "biuf" or part.dtype.itemsize > 8 or not part.shape:
            raise DataError(
                f"{name}: array {key!r} is {part.dtype} {list(part.shape)}; expected numbers of "
                f"at most 8 bytes, shape (samples, ...). {_move(part.dtype)}"
            )
    lengths = {key: part.shape[0] for key, part in rows.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        result = ", ".join(f"{key} {length}" for key, length in sorted(lengths.items()))
        raise DataError(f"{name}: samples per array: {result}; expected the same number, above 0.")


def _move(dtype: np.dtype) -> str:
    return "Convert it to strings: array.astype(str)." if dtype.kind == "S" else "Convert it."


def _count_classes(rows: Rows) -> int | None:
    """1 + the largest label, if y is one integer >= 0 (or ignored) per sample.

    None if not, or if there are too many labels to check.
    """
    if rows.dtype.kind not in "iu" or rows.shape[1:] not in ((), (1,)):
        return None
    if rows.shape[0] * rows.dtype.itemsize > _COUNTED_NBYTES:
        return None
    top = -1
    for start in range(0, rows.shape[0], _SCAN_ROWS):
        part = rows.take(np.arange(start, min(start + _SCAN_ROWS, rows.shape[0])))
        if (part[part < 0] != _IGNORED).any():
            return None
        top = max(top, int(part.max()))
    return top + 1 if top >= 0 else None
