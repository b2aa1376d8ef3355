"""`mnist:DIR`: the four idx files of MNIST (or a drop-in replacement), plain or .gz.

Inputs (1, 28, 28), 0..255 scaled to 0..1, then normalised with the training pixels' mean 0.1307 and
standard deviation 0.3081. A model with 784 inputs gets the pixels row by row.

Source: Y. LeCun, C. Cortes, C. Burges, The MNIST database (format of idx files).
"""

import contextlib
import gzip
import math
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from edgetrain.errors import DataError
from edgetrain.units.files import open_regular

from ..files.reading import directory, file_size
from ..files.unpack import Member, unpacked
from ..rows import FileRows
from ..source import Options, Scale
from .row_source import RowsSource, Splits

_MEAN, _STD = 0.1307, 0.3081
_PREFIX = {"train": "train", "test": "t10k"}
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_GZIP_NBYTES = 2**16  # for headers and incompressible blocks
_ERRORS = (gzip.BadGzipFile, zlib.error, EOFError)


def open_mnist(where: str, options: Options) -> Splits:
    """Open train-images-idx3-ubyte, train-labels-idx1-ubyte and t10k-..., or the same with .gz.

    Raises:
      DataError: a file is missing or malformed.
    """
    folder = directory(where, "a directory with the four idx files of MNIST")
    return {split: partial(_opened, folder, split) for split in _PREFIX}


def _opened(folder: Path, split: str) -> RowsSource:
    images = idx_rows(_find(folder, f"{_PREFIX[split]}-images", "idx3-ubyte"))
    labels = idx_rows(_find(folder, f"{_PREFIX[split]}-labels", "idx1-ubyte"))
    if images.dtype != np.uint8 or labels.dtype != np.uint8 or len(images.shape) != 3:
        raise DataError(
            f"{images.path}: {images.dtype.name} {list(images.shape)} with labels "
            f"{labels.dtype.name}; expected bytes (n, height, width). Download the files again."
        )
    if labels.shape != images.shape[:1] or not images.shape[0]:
        raise DataError(
            f"{labels.path}: {list(labels.shape)} labels for {images.shape[0]} images; "
            "expected one per image. Download the files again."
        )
    return RowsSource(
        f"mnist:{folder}",
        {"x": images, "y": labels},
        split=split,
        classes=10,
        limits={"y": 10},
        scale={"x": Scale.normalised(_MEAN, _STD, 255.0)},
        shapes={"x": (1, *images.shape[1:])},
        flat=("x",),
    )


def _find(folder: Path, stem: str, suffix: str) -> Path:
    for name in (f"{stem}-{suffix}", f"{stem}.{suffix}"):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.exists():
                return path
    raise DataError(f"{folder}: {stem}-{suffix} (or .gz) is missing. Put the file there.")


def idx_rows(path: Path) -> FileRows:
    """The array of an idx file; a .gz file is unpacked once next to it.

    Raises:
      DataError: it is missing, malformed, or has a wrong length.
    """
    size = file_size(path, "an idx file")
    try:
        with _unzipped(path) if path.suffix == ".gz" else open_regular(path) as file:
            head = file.read(4 + 4 * 8)
    except _ERRORS as error:
        raise DataError(f"{path}: not a gzip file ({error}). Download it again.") from None
    dtype, shape, offset = _parse_head(path, head)
    nbytes = offset + math.prod(shape) * dtype.itemsize
    if path.suffix == ".gz":
        most = nbytes + nbytes // 8 + _GZIP_NBYTES
        if size > most:
            raise DataError(
                f"{path}: {size} bytes; expected at most {most} for {list(shape)}. "
                "Download it again."
            )
        member = Member(partial(_unzipped, path), nbytes)
        path = unpacked(path, {path.stem: member}, _ERRORS) / path.stem
        return FileRows(path, offset, dtype, shape)
    if size != nbytes:
        raise DataError(
            f"{path}: {size} bytes; expected {nbytes} for {list(shape)}. Download it again."
        )
    return FileRows(path, offset, dtype, shape)


@contextlib.contextmanager
def _unzipped(path: Path) -> Iterator[gzip.GzipFile]:
    with open_regular(path) as file, gzip.open(file) as result:
        yield result


def _parse_head(path: Path, head: bytes) -> tuple[np.dtype, tuple[int, ...], int]:
    """(dtype, shape, data offset in bytes)."""
    if len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _TYPES and 1 <= head[3] <= 8:
        offset = 4 + 4 * head[3]
        if len(head) >= offset:
            shape = tuple(np.frombuffer(head[4:offset], ">u4").tolist())
            return np.dtype(_TYPES[head[2]]), shape, offset
    raise DataError(
        f"{path}: starts with {head[:4].hex() or 'nothing'}; expected an idx header, such as "
        "00000803. Download the file again."
    )
