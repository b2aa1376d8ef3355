"""Labels given as words: numbered alphabetically; the trained model stores the names."""

import sys
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from edgetrain.errors import DataError, UsageError
from edgetrain.units.wording import listed

from ..rows import Rows
from ..source import Source
from ..wrapped import Wrapped

_CHUNK = 2**14
MOST = 2**16  # with more words, they are not classes
_LONGEST = 200  # characters of a name
_UNFIT = {"Cc", "Cs", "Zl", "Zp"}  # control characters, surrogates, line and paragraph separators


class LabelRows:
    """Labels as integers.

    Args:
      rows: strings, one per sample.
      names: sorted class names; other words are refused when they are read.
    """

    def __init__(self, rows: Rows, names: Sequence[str], where: str) -> None:
        self._rows, self._names, self._where = rows, np.array(names), where
        self.shape, self.dtype = (rows.shape[0],), np.dtype(np.int64)

    def take(self, indices: np.ndarray) -> np.ndarray:
        words = _characters(self._rows.take(indices), self._where).reshape(len(indices))
        result = np.minimum(np.searchsorted(self._names, words), len(self._names) - 1)
        wrong = np.flatnonzero(self._names[result] != words)
        if wrong.size:
            raise DataError(
                f"{self._where}: sample {int(indices[wrong[0]])}: label {str(words[wrong[0]])!r}; "
                f"expected a label of the training samples: {listed(self._names.tolist())}."
            )
        return result


def names_of(rows: Rows, where: str) -> tuple[str, ...]:
    """The distinct words, sorted.

    Raises:
      DataError: a word is empty, or there are more than MOST.
    """
    result: set[str] = set()
    for start in range(0, rows.shape[0], _CHUNK):
        part = rows.take(np.arange(start, min(start + _CHUNK, rows.shape[0])))
        result |= set(np.unique(_characters(part, where)).tolist())
        check_names(result, where)
    return tuple(sorted(result))


def _characters(words: np.ndarray, where: str) -> np.ndarray:
    """Check characters of words from a file: Python would raise its own errors for invalid ones.

    Raises:
      DataError: a code point is out of range.
    """
    words = np.ascontiguousarray(words.astype(words.dtype.newbyteorder("=")))
    if words.dtype.itemsize and (words.view(np.uint32) > sys.maxunicode).any():
        raise DataError(f"{where}: a label is not valid Unicode. Save it again.")
    return words


def check_names(found: set[str], where: str) -> None:
    """Raise DataError for an unusable name (`is_name`), or for more than MOST."""
    if len(found) > MOST:
        raise DataError(
            f"{where}: more than {MOST} different labels; expected class names. Correct the data."
        )
    wrong = sorted(name for name in found if not is_name(name))
    if wrong:
        shown = f"label {wrong[0][:40]!r} of {len(wrong[0])} characters"
        what = shown if wrong[0] else "an empty label"
        raise DataError(
            f"{where}: {what}; expected class names: 1 to {_LONGEST} characters of UTF-8 "
            "text on one line. Correct the data."
        )


def is_name(text: str) -> bool:
    """Whether it is a usable name: valid Unicode without control characters or line breaks."""
    import unicodedata  # only needed if labels are words

    return 0 < len(text) <= _LONGEST and not _UNFIT & {*map(unicodedata.category, text)}


class Renumbered(Wrapped):
    """A source with its classes numbered as in a run.

    Raises:
      DataError: a class is not in the run.
    """

    def __init__(self, whole: Source, names: Sequence[str]) -> None:
        known = {name: k for k, name in enumerate(names)}
        strange = [name for name in whole.labels or () if name not in known]
        if strange:
            raise DataError(
                f"{whole.name}: class {strange[0]!r}; the run has {listed(names)}. "
                "Use data with the run's classes."
            )
        super().__init__(whole)
        self.classes, self.labels = len(names), tuple(names)
        again = whole.reopen
        if again is not None:
            self.reopen = lambda split: Renumbered(again(split), names)
        self._numbers = np.array([known[name] for name in whole.labels or ()], np.int64)

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        result = self._whole.read(names, indices, key, train)
        if "y" in names:
            result["y"] = self._numbers[result["y"].astype(np.int64)]
        return result

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        self._whole.scan({k: v for k, v in limits.items() if k != "y"}, ignore_index)

    def scan_numbers(self, names: Collection[str]) -> None:
        self._whole.scan_numbers({*names} - {"y"})


def class_counts(source: Source) -> np.ndarray:
    """Samples per class, int64 [classes].

    Raises:
      UsageError: targets are not classes.
    """
    if source.classes is None:
        raise UsageError(f"{source.name}: targets are not classes, so they can't be balanced.")
    counts = np.zeros(source.classes, np.int64)
    for start in range(0, source.n, _CHUNK):
        part = np.arange(start, min(start + _CHUNK, source.n))
        result = source.read(("y",), part, (0, 0), False)["y"].reshape(-1)
        result = result[(result >= 0) & (result < source.classes)].astype(np.int64)
        counts += np.bincount(result, minlength=source.classes)
    return counts


def class_weights(source: Source) -> tuple[float, ...]:
    """Weights that give classes equal shares of the loss: samples / (classes * class samples).

    A class without samples gets 0.

    Raises:
      UsageError: targets are not classes.
    """
    counts = class_counts(source)
    present = int((counts > 0).sum())
    weights = [counts.sum() / (present * count) if count else 0.0 for count in counts.tolist()]
    return tuple(float(weight) for weight in weights)
