"""Folders of files, one folder per class: pictures and sounds, each sample a file of its own.

A file becomes what the model takes: of the model's shape, which is known once data and model have
met (`Source.adapt`).
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
from .arrays import SPLITS, VALIDATION, Splits
from .labels import check_names

Shape = tuple[int, ...]
_NO_CLASSES = ("__MACOSX", "__pycache__")
_AHEAD = 2**15  # files whose heads are looked at before training: a few seconds
_ASIDE = 2**17  # files that are no samples: with more, the folder is not the one that was meant


class ClassFiles(Source):
    """Samples in files, labelled by their folders.

    Args:
      paths, labels: of each sample.
      names: of the classes.
      shape: of a sample before a model asks for another one.
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
        """A file as an array of this shape.

        Raises:
          DataError: it cannot be read, or made of this shape.
        """

    @abstractmethod
    def look(self, path: Path) -> object:
        """The head of a file, which costs little.

        Raises:
          DataError: it cannot be a sample.
        """

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        for path in self.paths[:_AHEAD]:
            self.look(path)

    def fits(self, shape: Shape) -> bool:
        """Whether a sample can be made of this shape."""
        return True

    def adapt(self, shapes: Mapping[str, Shape]) -> None:
        wanted = shapes.get("x")
        if wanted is not None and wanted != self.fields["x"].shape and self.fits(wanted):
            self.fields["x"] = Field(wanted, np.dtype(np.float32))
            self.note = f"{self.name}: samples are made {list(wanted)}, {self.way}"

    way = ""  # how samples are made of another shape

    def where(self, index: int) -> str:
        return str(self.paths[index])

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        if "y" in names:
            found["y"] = self._y[indices]
        if "x" in names:
            shape = self.fields["x"].shape
            found["x"] = np.stack([self._made(k, shape) for k in indices.tolist()])
        return found

    def slow(self, shape: Shape) -> bool:
        """Whether a sample of this shape takes long to make, and is kept when it is made."""
        return False

    def _made(self, k: int, shape: Shape) -> np.ndarray:
        if not self.slow(shape):
            return self.load(self.paths[k], shape)
        with self._lock:
            if self._kept is None or self._kept_shape != shape:
                wanted = self.directory or Path(os.environ.get("TMPDIR") or "/tmp")
                place = next(one for one in (wanted, *wanted.parents) if one.is_dir())
                self._kept, self._kept_shape = Kept(len(self.paths), shape, place), shape
            found = self._kept.get(k)
        if found is None:
            found = self.load(self.paths[k], shape)
            with self._lock:
                self._kept.put(k, found)
        return found


Made = Callable[[str, list[Path], list[int], list[str], str], Source]


def open_classes(where: str, suffixes: tuple[str, ...], make: Made) -> Splits:
    """DIR/<class>/FILE, or the same below DIR/train and DIR/test (or val).

    Args:
      suffixes: of the files that are samples; others are left aside.
    Raises:
      DataError: no classes or samples, or a class of the test split without training samples.
    """
    folder = directory(where, "a directory with one folder per class")
    if not (folder / "train").is_dir():
        return {"train": partial(_opened, folder, class_names(folder), "train", suffixes, make)}
    classes = class_names(folder / "train")
    places = {"train": folder / "train"}
    for other in ("test", *VALIDATION):
        if (folder / other).is_dir():
            places.setdefault("test", folder / other)
    found = {
        split: partial(_opened, place, classes, split, suffixes, make)
        for split, place in places.items()
    }
    return {split: found[split] for split in SPLITS if split in found}


def class_names(folder: Path) -> list[str]:
    """Names of the folders, in order; hidden ones are none.

    Raises:
      DataError: there is none, or one whose name cannot be a class's.
    """
    names = sorted(p.name for p in folder.iterdir() if _is_class(p))
    if not names:
        raise DataError(f"{folder}: has no folders; expected one per class. Sort the samples.")
    check_names(set(names), str(folder))
    return names


def _is_class(place: Path) -> bool:
    """Whether it is the folder of a class: neither hidden nor left behind by an archive."""
    return place.is_dir() and place.name[:1] != "." and place.name not in _NO_CLASSES


def nowhere(folder: Path, what: str) -> DataError:
    """What is said of a folder whose classes have no samples.

    Args:
      what: the samples that are looked for.
    """
    inner = [place for place in sorted(folder.iterdir()) if _is_class(place)]
    below = next((place for place in inner if any(map(_is_class, place.iterdir()))), None)
    move = "Save samples there."
    if below is not None:
        move = f"{below} has folders: name that, if they are the classes."
    return DataError(f"{folder}: has no {what} in its folders. {move}")


def kinds(folder: Path) -> set[str]:
    """Suffixes of the files in the folders of a directory's classes (or of its train part)."""
    inner = folder / "train" if (folder / "train").is_dir() else folder
    found: set[str] = set()
    for place in inner.iterdir():
        if _is_class(place):
            found |= {path.suffix.lower() for path in place.iterdir()}
    return found


def _opened(
    folder: Path, classes: list[str], split: str, suffixes: tuple[str, ...], make: Made
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
        raise nowhere(folder, f"{', '.join(suffixes)} files")
    return make(f"dir:{folder}", paths, labels, classes, split)


def _samples(place: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Files below a folder, links to other folders not followed; hidden ones are left aside.

    Raises:
      DataError: there is next to nothing else.
    """
    found = aside = 0
    for where, _, names in os.walk(place, onerror=_raise):
        for name in names:
            if name[:1] != "." and os.path.splitext(name)[1].lower() in suffixes:
                found += 1
                yield Path(where, name)
            else:
                aside += 1
        if aside > _ASIDE + found:
            raise DataError(
                f"{place}: {aside} files that are no samples ({', '.join(suffixes)}), {found} that "
                "are; expected the folder of a class. Name the folder above the classes."
            )


def _raise(error: OSError) -> None:
    raise error
