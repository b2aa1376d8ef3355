"""`dir:DIR`: one folder per class with one file per sample; or DIR/train and DIR/test.

All files are .npy arrays, pictures (pictures.py) or wav sounds (sounds.py).

Classes are numbered by folder name, alphabetically. All arrays must have the shape and type of the
first; u8 is scaled to [0, 1] for models with float inputs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgetrain.errors import DataError
from edgetrain.units.files import open_regular

from ..files.npy_header import HEAD_NBYTES, NpyHeader, parse_npy_header
from ..files.reading import directory, file_size
from ..rows import ArrayRows, Rows
from ..source import BYTES, Options
from . import pictures, sounds
from .class_files import kinds, open_classes
from .row_source import RowsSource, Splits

_AHEAD = 2**17  # files to check before training: a few seconds


class SampleFiles:
    """Rows that are separate files, opened on demand."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        head, _ = _load(paths[0], None)
        self._head = head
        self.shape, self.dtype = (len(paths), *head.shape), head.dtype

    def check(self) -> None:
        """Check that the first few files have the same size and header.

        Raises:
          DataError: names the first that differs.
        """
        first = b""
        for path in self._paths[:_AHEAD]:
            size = file_size(path, "a .npy file")
            with open_regular(path) as file:
                head = file.read(self._head.offset)
            first = first or head
            if head != first or size != self._head.offset + self._head.nbytes:
                _load(path, self._head)  # parses it: equal headers may differ in bytes

    def path(self, index: int) -> Path:
        return Path(self._paths[index])

    def take(self, indices: np.ndarray) -> np.ndarray:
        out = np.empty((len(indices), *self.shape[1:]), self.dtype)
        for row, index in enumerate(indices.tolist()):
            out[row] = _load(self._paths[index], self._head)[1]
        return out


class Folders(RowsSource):
    """A source of separate files, all checked before training begins."""

    numbers_nbytes = 2**24  # opening a file is slower than reading it

    def where(self, index: int) -> str:
        files = self.rows["x"]
        assert isinstance(files, SampleFiles)
        return f"sample {index} ({files.path(index)})"

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        files = self.rows["x"]
        assert isinstance(files, SampleFiles)
        files.check()
        super().scan({name: limit for name, limit in limits.items() if name == "y"}, ignore_index)


def open_folders(where: str, options: Options) -> Splits:
    """Open DIR/<class>/*.npy (or pictures, or sounds), or the same in DIR/train and DIR/test.

    Raises:
      DataError: no classes or samples, or samples differ in shape or type.
    """
    folder = directory(where, "a directory with one folder per class")
    result = kinds(folder)
    families = {"pictures": pictures.SUFFIXES, "sounds": sounds.SUFFIXES, ".npy files": (".npy",)}
    there = {name: result & {*suffixes} for name, suffixes in families.items()}
    there = {name: suffixes for name, suffixes in there.items() if suffixes}
    if len(there) > 1:
        listed = ", ".join(f"{name} ({min(there[name])})" for name in there)
        raise DataError(
            f"{where}: found {listed}; expected one kind. Move the others away, or use images: or "
            "sounds: in place of dir:."
        )
    if "pictures" in there:
        return pictures.open_pictures(where, options)
    if "sounds" in there:
        return sounds.open_sounds(where, options)
    return open_classes(where, (".npy",), _made, "pictures, .wav or .npy files")


def _made(
    name: str, paths: list[Path], labels: list[int], classes: list[str], split: str
) -> RowsSource:
    x = SampleFiles(paths)
    scale = {"x": BYTES} if x.dtype == np.uint8 else {}
    rows: dict[str, Rows] = {"x": x, "y": ArrayRows(np.array(labels))}
    made = Folders(name, rows, split=split, classes=len(classes), scale=scale)
    made.labels = tuple(classes)
    return made


def _load(path: Path, expected: NpyHeader | None) -> tuple[NpyHeader, np.ndarray]:
    """Header and array of one sample; they must match `expected`."""
    size = file_size(path, "a .npy file")
    with open_regular(path) as file:
        head = parse_npy_header(file.read(HEAD_NBYTES), str(path))
        if expected and (head.shape, head.dtype) != (expected.shape, expected.dtype):
            raise DataError(
                f"{path}: {head.dtype.name} {list(head.shape)}; expected "
                f"{expected.dtype.name} {list(expected.shape)}, like the first sample. Convert it."
            )
        if size != head.offset + head.nbytes:
            raise DataError(
                f"{path}: {size} bytes; expected {head.offset + head.nbytes} for "
                f"{list(head.shape)}. Save it again."
            )
        file.seek(head.offset)
        data = np.frombuffer(file.read(head.nbytes), head.dtype)
    return head, data.reshape(head.shape, order="F" if head.fortran_order else "C")
