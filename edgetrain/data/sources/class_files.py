"""Folders of picture or sound files, one folder per class, one file per sample.

Files are converted to the shape the model expects, once it is known (`Source.adapt`).
"""

import os
from _thread import allocate_lock
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from edgetrain.errors import DataError

from ..files.kept import Kept
from ..files.reading import directory
from ..source import Field, Scale, Source
from .labels import check_names
from .row_source import SPLITS, VALIDATION, Splits

Shape = tuple[int, ...]
_NO_CLASSES = ("__MACOSX", "__pycache__")
_AHEAD = 2**15  # files whose headers are checked before training: a few seconds
_ASIDE = 2**17  # other files: with more, it is probably the wrong folder


class ClassFiles(Source):
    """Samples in files, labelled by their folders.

    Args:
      paths, labels: one per sample.
      names: class names.
      shape: sample shape, until a model asks for another one.
    """

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        labels: Sequence[int],
        names: Sequence[str],
        split: str,
        shape: Shape,
        scale: Mapping[str, Scale] | None = None,
    ) -> None:
        fields = {"x": Field(shape, np.dtype(np.float32)), "y": Field((), np.dtype(np.int64))}
        super().__init__(name, len(paths), fields, classes=len(names), split=split, scale=scale)
        self.labels = tuple(names)
        self.paths, self._y = paths, np.array(labels, np.int64)
        self._lock = allocate_lock()
        self._kept: Kept | None = None
        self._kept_shape: Shape = ()

    @abstractmethod
    def load(self, path: Path, shape: Shape) -> np.ndarray:
        """Load a file as an array of this shape.

        Raises:
          DataError: it cannot be read, or converted to this shape.
        """

    @abstractmethod
    def look(self, path: Path) -> object:
        """Read only the header of a file.

        Raises:
          DataError: it is not a sample.
        """

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        for path in self.paths[:_AHEAD]:
            self.look(path)

    def fits(self, shape: Shape) -> bool:
        """Whether a sample can be converted to this shape."""
        return True

    def adapt(self, shapes: Mapping[str, Shape]) -> None:
        wanted = shapes.get("x")
        if wanted is not None and wanted != self.fields["x"].shape and self.fits(wanted):
            self.fields["x"] = Field(wanted, np.dtype(np.float32))
            self.note = f"{self.name}: samples are converted to {list(wanted)}: {self.way}"

    way = ""  # how samples are converted to another shape

    def where(self, index: int) -> str:
        return str(self.paths[index])

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        result: dict[str, np.ndarray] = {}
        if "y" in names:
            result["y"] = self._y[indices]
        if "x" in names:
            shape = self.fields["x"].shape
            result["x"] = np.stack([self._made(k, shape) for k in indices.tolist()])
        return result

    def slow(self, shape: Shape) -> bool:
        """Whether samples of this shape are slow to compute and therefore cached."""
        return False

    def _made(self, k: int, shape: Shape) -> np.ndarray:
        if not self.slow(shape):
            return self.load(self.paths[k], shape)
        with self._lock:
            if self._kept is None or self._kept_shape != shape:
                wanted = self.directory or Path(os.environ.get("TMPDIR") or "/tmp")
                place = next(item for item in (wanted, *wanted.parents) if item.is_dir())
                self._kept, self._kept_shape = Kept(len(self.paths), shape, place), shape
            result = self._kept.get(k)
        if result is None:
            result = self.load(self.paths[k], shape)
            with self._lock:
                self._kept.put(k, result)
        return result


Made = Callable[[str, list[Path], list[int], list[str], str], Source]


def open_classes(where: str, suffixes: tuple[str, ...], make: Made, expected: str = "") -> Splits:
    """Open DIR/<class>/FILE, or the same in DIR/train and DIR/test (or val).

    Args:
      suffixes: suffixes of sample files; other files are ignored.
      expected: what files are expected, for messages; "": files with these suffixes.
    Raises:
      DataError: no classes or samples, or a test class without training samples.
    """
    folder = directory(where, "a directory with one folder per class")
    expected = expected or f"{', '.join(suffixes)} files"
    opened = partial(_opened, suffixes=suffixes, make=make, expected=expected)
    if not (folder / "train").is_dir():
        return {"train": partial(opened, folder, class_names(folder), "train")}
    classes = class_names(folder / "train")
    places = {"train": folder / "train"}
    for other in ("test", *VALIDATION):
        if (folder / other).is_dir():
            places.setdefault("test", folder / other)
    return {
        split: partial(opened, places[split], classes, split) for split in SPLITS if split in places
    }


def class_names(folder: Path) -> list[str]:
    """Sorted names of the class folders, without hidden ones.

    Raises:
      DataError: there are no classes, or one has an unusable name.
    """
    names = sorted(p.name for p in folder.iterdir() if _is_class(p))
    if not names:
        raise DataError(f"{folder}: no folders; expected one per class. Sort the samples.")
    check_names(set(names), str(folder))
    return names


def _is_class(place: Path) -> bool:
    """Whether it is a class folder: not hidden, not a leftover of an archive."""
    return place.is_dir() and place.name[:1] != "." and place.name not in _NO_CLASSES


def _no_samples(folder: Path, what: str) -> DataError:
    """The error for a folder without samples.

    Args:
      what: the kind of sample, for the message.
    """
    inner = [place for place in sorted(folder.iterdir()) if _is_class(place)]
    below = next((place for place in inner if any(map(_is_class, place.iterdir()))), None)
    move = "Put samples there."
    if below is not None:
        move = f"If the folders in {below} are the classes, name that."
    return DataError(f"{folder}: its folders contain no {what}. {move}")


def kinds(folder: Path) -> set[str]:
    """Suffixes of the files in a directory's class folders (or those of its train part)."""
    inner = folder / "train" if (folder / "train").is_dir() else folder
    result: set[str] = set()
    for place in inner.iterdir():
        if _is_class(place):
            for _, folders, names in os.walk(place):
                seen = (name for name in (*folders, *names) if name[:1] != ".")
                result |= {os.path.splitext(name)[1].lower() for name in seen}
    return result


def _opened(
    folder: Path,
    classes: list[str],
    split: str,
    suffixes: tuple[str, ...],
    make: Made,
    expected: str,
) -> Source:
    strange = sorted(set(class_names(folder)) - set(classes))
    if strange:
        raise DataError(f"{folder}: class {strange[0]!r} has no training samples. Add some.")
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        place = folder / name
        files = sorted(_samples(place, suffixes)) if place.is_dir() else []
        paths += files
        labels += [label] * len(files)
    if not paths:
        raise _no_samples(folder, expected)
    return make(f"dir:{folder}", paths, labels, classes, split)


def _samples(place: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Sample files in a folder and its subfolders; links to folders and hidden files are skipped.

    Raises:
      DataError: most files are something else.
    """
    result = aside = 0
    for where, folders, names in os.walk(place, onerror=_raise):
        named = [name for name in folders if _is_sample(name, suffixes)]  # reading one will fail
        found = named + [name for name in names if _is_sample(name, suffixes)]
        yield from (Path(where, name) for name in found)
        result += len(found)
        aside += len(names) + len(named) - len(found)
        if aside > _ASIDE + result:
            raise DataError(
                f"{place}: found {result} samples ({', '.join(suffixes)}) and {aside} other files; "
                "expected a class folder. Name the folder that contains the class folders."
            )


def _is_sample(name: str, suffixes: tuple[str, ...]) -> bool:
    return name[:1] != "." and os.path.splitext(name)[1].lower() in suffixes


def _raise(error: OSError) -> None:
    raise error
