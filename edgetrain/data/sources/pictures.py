"""`images:DIR`: png, jpeg and other pictures, one folder per class; needs Pillow.

Pictures are converted to the model's [channels, height, width] or [height, width, channels], with
three channels or one (grey). A picture is scaled to cover the model's size and cropped on both
sides; values are 0 to 1 (16-bit pictures: the upper eight bits). Without a model, samples have the
first picture's size.
"""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.errors import DataError
from edgetrain.units.files import open_regular

from ..files.reading import file_size
from ..source import BYTES, CHANNELS, Options
from .class_files import ClassFiles, Shape, open_classes
from .row_source import Splits

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # others may run other programs
_OF_16_BITS = ("PNG", "PPM")  # Pillow may report their integers as 32-bit
_MOST_PIXELS, _MOST_WORK, _MOST_NBYTES = 2**25, 2**29, 2**28
_TURNED, _SIDEWAYS = 0x0112, (5, 6, 7, 8)  # exif tag for rotation; its values that swap the sides


class Pictures(ClassFiles):
    """Pictures, decoded on demand."""

    way = "scaled to cover this size, then cropped on both sides"

    def __init__(
        self, name: str, paths: list[Path], labels: list[int], names: list[str], split: str
    ) -> None:
        with _opened(paths[0]) as first:
            grey = first.mode[:1] in ("1", "L", "I", "F")
            turned = first.getexif().get(_TURNED, 1) in _SIDEWAYS
            width, height = first.size[::-1] if turned else first.size
        shape = (1 if grey else 3, height, width)
        scale = {"x": BYTES}
        super().__init__(name, paths, labels, names, split, shape, scale)
        self.pictures = True

    def look(self, path: Path) -> tuple[int, int]:
        with _opened(path) as result:
            return result.size

    def fits(self, shape: Shape) -> bool:
        return _order(shape) is not None

    def load(self, path: Path, shape: Shape) -> np.ndarray:
        order = _order(shape)
        channels, height, width = shape if order is None else order
        with _opened(path) as result:
            picture = _plain(result, "L" if channels == 1 else "RGB")
            if picture.size != (width, height):
                picture = _covering(picture, width, height)
            pixels = np.array(picture, np.uint8).reshape(height, width, channels)
        last = len(shape) == 3 and shape[0] not in CHANNELS
        return pixels if last else np.moveaxis(pixels, 2, 0).reshape(shape)


def open_pictures(where: str, options: Options) -> Splits:
    """Open DIR/<class>/*.png (or jpg, ..), or the same in DIR/train and DIR/test.

    Raises:
      UsageError: Pillow is not installed.
      DataError: no classes or pictures.
    """
    return open_classes(where, SUFFIXES, Pictures)


def _order(shape: Shape) -> tuple[int, int, int] | None:
    """(channels, height, width) of a model's input shape; None if it is not a picture."""
    if len(shape) == 2:
        return 1, *shape
    if len(shape) == 3 and shape[0] in CHANNELS:
        return shape[0], shape[1], shape[2]
    if len(shape) == 3 and shape[2] in CHANNELS:
        return shape[2], shape[0], shape[1]
    return None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        from edgetrain.units.packages import explained

        raise explained(error) from error
    return Image


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a picture without reading pixels; errors within the context name it.

    Raises:
      DataError: it is not a picture, or too large.
    """
    image = _pillow()
    file_size(path, "a picture")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # decoders' warnings take lines of their own
            with open_regular(path) as file, image.open(file, formats=_FORMATS) as result:
                _check_size(path, result)
                yield result
    except DataError:
        raise
    except Exception as error:  # decoders raise anything
        reason = _reason(error)
        raise DataError(
            f"{path}: not a readable picture ({reason}). Save it again, or remove it."
        ) from None


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):  # its text shows a Python object
        return "its content has no known format"
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _check_size(path: Path, picture: Any) -> None:
    """Check a picture's size from its header; a large jpeg is decoded at reduced size.

    Raises:
      DataError: too many pixels, or too much work: a few bytes can add a scan to a progressive
        jpeg, and each scan visits all pixels.
    """
    width, height = picture.size
    if picture.format == "JPEG":
        for part in (2, 4, 8):
            if width * height > _MOST_PIXELS >= (width // part) * (height // part):
                picture.draft(None, (width // part, height // part))
                break
    pixels = picture.size[0] * picture.size[1]
    if not 0 < pixels <= _MOST_PIXELS:
        raise DataError(
            f"{path}: {width} x {height} pixels; expected at most {_MOST_PIXELS}. Make it smaller."
        )
    if picture.info.get("progressive"):
        with open_regular(path) as file:
            scans = file.read(_MOST_NBYTES).count(b"\xff\xda")
        if scans * pixels > _MOST_WORK:
            raise DataError(
                f"{path}: {scans} scans of {pixels} pixels; expected at most "
                f"{max(1, _MOST_WORK // pixels)} scans. Save it again, not as a progressive jpeg."
            )


def _plain(picture: Any, mode: str) -> Any:
    """Pixels in 8 bits, "L" or "RGB", rotated according to EXIF.

    Raises:
      ValueError: the range of its values is unknown.
    """
    from PIL import ImageOps

    ImageOps.exif_transpose(picture, in_place=True)
    if picture.mode[:1] == "I":  # 16 bits, which Pillow would clip at 255
        wide = np.asarray(picture)
        if wide.min() < 0 or wide.max() > 2**16 - 1:
            raise ValueError("its pixels have more than 16 bits")
        narrow = picture.mode == "I" and picture.format not in _OF_16_BITS
        if narrow and wide.max() > 255:
            raise ValueError("its pixels have 32 bits: save them with 8 or 16")
        picture = _pillow().fromarray((wide >> (0 if narrow else 8)).astype(np.uint8))
    if picture.mode[:1] == "F":
        raise ValueError("its pixels are floats: save them as .npy files")
    return picture if picture.mode == mode else picture.convert(mode)


def _covering(picture: Any, width: int, height: int) -> Any:
    """Scale a picture to cover width x height and crop the centre."""
    image = _pillow()
    factor = max(width / picture.size[0], height / picture.size[1])
    size = tuple(
        max(least, round(side * factor))
        for side, least in zip(picture.size, (width, height), strict=True)
    )
    if size[0] * size[1] > max(_MOST_PIXELS, width * height):  # a strip: only its middle
        sides = width / factor, height / factor
        left, top = ((p - s) / 2 for p, s in zip(picture.size, sides, strict=True))
        box = (left, top, left + sides[0], top + sides[1])
        return picture.resize((width, height), image.Resampling.BILINEAR, box=box)
    picture = picture.resize(size, image.Resampling.BILINEAR)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return picture.crop((left, top, left + width, top + height))
