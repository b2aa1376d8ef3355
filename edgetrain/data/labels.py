"""Labels that are words: numbered in the order of their names, which go into the trained model."""

from collections.abc import Sequence

import numpy as np

from edgetrain.errors import DataError, UsageError

from .rows import Rows
from .source import Source

_CHUNK = 2**14
MOST = 2**16  # more words than this are no classes


class LabelRows:
    """Words as whole numbers.

    Args:
      rows: of texts, one a sample.
      names: rising; a word that is not there is refused when it is read.
    """

    def __init__(self, rows: Rows, names: Sequence[str], where: str) -> None:
        self._rows, self._names, self._where = rows, np.array(names), where
        self.shape, self.dtype = (rows.shape[0],), np.dtype(np.int64)

    def take(self, indices: np.ndarray) -> np.ndarray:
        words = self._rows.take(indices).reshape(len(indices))
        found = np.minimum(np.searchsorted(self._names, words), len(self._names) - 1)
        wrong = np.flatnonzero(self._names[found] != words)
        if wrong.size:
            raise DataError(
                f"{self._where}: sample {int(indices[wrong[0]])}: label {str(words[wrong[0]])!r}; "
                f"expected one of the training samples': {', '.join(self._names[:10])}"
                f"{' ..' * (len(self._names) > 10)}."
            )
        return found


def is_text(rows: Rows) -> bool:
    """Whether these are words, one a sample."""
    return rows.dtype.kind == "U" and rows.shape[1:] in ((), (1,))


def names_of(rows: Rows, where: str) -> tuple[str, ...]:
    """The words that occur, in their order.

    Raises:
      DataError: an empty one, or more than MOST.
    """
    found: set[str] = set()
    for start in range(0, rows.shape[0], _CHUNK):
        part = rows.take(np.arange(start, min(start + _CHUNK, rows.shape[0])))
        found |= set(np.unique(part).tolist())
        check_names(found, where)
    return tuple(sorted(found))


def check_names(found: set[str], where: str) -> None:
    """Raises DataError: an empty name, or more than MOST."""
    if "" in found or len(found) > MOST:
        what = "an empty label" if "" in found else f"more than {MOST} different labels"
        raise DataError(f"{where}: {what}; expected the names of classes. Correct the data.")


def class_counts(source: Source) -> np.ndarray:
    """Samples of each class, int64 [classes].

    Raises:
      UsageError: the targets are no classes.
    """
    if source.classes is None:
        raise UsageError(
            f"{source.name}: its targets are no classes, so there are none to balance."
        )
    counts = np.zeros(source.classes, np.int64)
    for start in range(0, source.n, _CHUNK):
        part = np.arange(start, min(start + _CHUNK, source.n))
        found = source.read(("y",), part, (0, 0), False)["y"].reshape(-1)
        found = found[(found >= 0) & (found < source.classes)].astype(np.int64)
        counts += np.bincount(found, minlength=source.classes)
    return counts


def class_weights(source: Source) -> tuple[float, ...]:
    """Weights that give each class the same share of the loss: samples / (classes * its own).

    A class without samples gets 0.

    Raises:
      UsageError: the targets are no classes.
    """
    counts = class_counts(source)
    present = int((counts > 0).sum())
    weights = [counts.sum() / (present * count) if count else 0.0 for count in counts.tolist()]
    return tuple(float(weight) for weight in weights)
