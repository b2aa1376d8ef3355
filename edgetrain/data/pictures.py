"""`images:DIR`: png, jpeg and other pictures, one folder per class; needs Pillow.

A picture becomes what the model takes: [channels, height, width] or [height, width, channels],
three channels or one (grey). It is scaled so that it covers the model's size, and what stands over
is cut off on both sides; its values are 0 to 1. Without a model samples have the first picture's
size.
"""

from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.errors import DataError

from .arrays import Splits
from .class_files import ClassFiles, Shape, open_classes
from .source import Options, Scale

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_MOST_PIXELS = 2**27


class Pictures(ClassFiles):
    """Pictures, decoded when their samples are asked for."""

    way = "scaled to cover it and cut on both sides"

    def __init__(
        self, name: str, paths: list[Path], labels: list[int], names: list[str], split: str
    ) -> None:
        first = _decoded(paths[0])
        grey = first.mode in ("1", "L", "I;16", "I", "F", "LA")
        width, height = first.size
        shape = (1 if grey else 3, height, width)
        scale = {"x": Scale.normalised(0.0, 1.0, 255.0)}
        super().__init__(name, paths, labels, names, split, shape, scale)

    def fits(self, shape: Shape) -> bool:
        return _order(shape) is not None

    def load(self, path: Path, shape: Shape) -> np.ndarray:
        order = _order(shape)
        channels, height, width = shape if order is None else order
        picture = _decoded(path).convert("L" if channels == 1 else "RGB")
        if picture.size != (width, height):
            picture = _covering(picture, width, height)
        pixels = np.asarray(picture, np.uint8).reshape(height, width, channels)
        last = len(shape) == 3 and shape[0] not in (1, 3)
        return pixels if last else np.moveaxis(pixels, 2, 0).reshape(shape)


def open_pictures(where: str, options: Options) -> Splits:
    """DIR/<class>/*.png and the like, or the same below DIR/train and DIR/test.

    Raises:
      UsageError: Pillow is not installed.
      DataError: no classes or pictures.
    """
    return open_classes(where, SUFFIXES, Pictures)


def _order(shape: Shape) -> tuple[int, int, int] | None:
    """(channels, height, width) that a model's shape means; None where it is no picture."""
    if len(shape) == 2:
        return 1, *shape
    if len(shape) == 3 and shape[0] in (1, 3):
        return shape[0], shape[1], shape[2]
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[2], shape[0], shape[1]
    return None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        from edgetrain.units.packages import explained

        raise explained(error) from error
    return Image


def _decoded(path: Path) -> Any:
    """A picture as it is stored, turned as its notes say."""
    image = _pillow()
    try:
        with image.open(path) as found:
            if found.size[0] * found.size[1] > _MOST_PIXELS:
                raise DataError(
                    f"{path}: {found.size[0]} x {found.size[1]} pixels; expected at most "
                    f"{_MOST_PIXELS}. Make it smaller."
                )
            from PIL import ImageOps

            return ImageOps.exif_transpose(found.copy())
    except DataError:
        raise
    except Exception as error:  # decoders raise what they like
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise DataError(
            f"{path}: not a picture that can be read ({reason}). Save it again, or remove it."
        ) from None


def _covering(picture: Any, width: int, height: int) -> Any:
    """The picture scaled to cover width x height, its middle cut out."""
    image = _pillow()
    factor = max(width / picture.size[0], height / picture.size[1])
    size = tuple(
        max(least, round(side * factor))
        for side, least in zip(picture.size, (width, height), strict=True)
    )
    picture = picture.resize(size, image.Resampling.BILINEAR)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return picture.crop((left, top, left + width, top + height))
