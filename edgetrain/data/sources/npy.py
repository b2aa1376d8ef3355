"""`npy:DIR` with x.npy, y.npy (or x_train.npy, ...), and `npy:X.npy,Y.npy`."""

from functools import partial
from pathlib import Path

from ..files.npy_header import npy_rows
from ..files.reading import directory
from ..source import Options
from .arrays import splits_of
from .row_source import Splits


def open_npy(where: str, options: Options) -> Splits:
    """Open .npy files, read sample by sample; types have the same meaning as in an npz file.

    Raises:
      DataError: a file is missing or malformed, or as in `plain_rows`.
    """
    x, comma, y = where.partition(",")
    if comma:
        return splits_of(where, {"x": partial(npy_rows, x), "y": partial(npy_rows, y)})
    folder = directory(where, "a directory with x.npy and y.npy, or 'npy:X.npy,Y.npy'")
    files: dict[str, Path] = {path.stem: path for path in sorted(folder.glob("*.npy"))}
    return splits_of(where, {name: partial(npy_rows, path) for name, path in files.items()})
