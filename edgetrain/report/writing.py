"""Writes a picture to a file."""

from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..program.atomic import write_atomically
from .canvas import Picture, svg
from .png import write_png

ENDINGS = (".svg", ".png")


def check_ending(path: str | Path, label: str, endings: Sequence[str] = ENDINGS) -> None:
    """Refuse a file name with an unknown ending.

    Raises:
      UsageError: the ending is not one of `endings`.
    """
    if Path(path).suffix not in endings:
        raise UsageError(f"{label} {path}: expected a name ending in {' or '.join(endings)}.")


def write_picture(picture: Picture, path: str | Path) -> None:
    """Write a picture completely or not at all.

    Raises:
      UsageError: the ending is not .svg or .png, or matplotlib is not installed.
      RunError: the file can't be written.
    """
    path = Path(path)
    check_ending(path, "picture")
    if path.suffix == ".svg":
        text = svg(picture).encode()
        write_atomically(path, lambda file: file.writelines([text]))
    else:
        write_atomically(path, lambda file: write_png(picture, file, path.name))
