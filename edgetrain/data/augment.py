"""Random augmentation of training samples, and targets that are inputs (autoencoders).

Every random choice depends only on (seed, epoch, sample), so it is the same in a resumed run, and
with any microbatch or number of threads.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from edgetrain.errors import DataError, UsageError

from .checks.values import check_known
from .order.hashing import key_of, random_bits
from .source import CHANNELS, Field, Source
from .wrapped import Wrapped

_SHIFT, _NOISE = 0x73686966, 0x6E6F6973  # purposes: each has its own bits
_TWO_PI = 2.0 * math.pi


@dataclass(frozen=True)
class Augmentation:
    """Random changes to "x"; targets of the same size (`_moved`) are mirrored and shifted with it.

    Attributes:
      flip: mirror half of the samples along their width.
      crop: shift by up to this many places along their width, and pictures along their height too;
        fill with zeros, integer targets with `ignore_index` if the loss has one.
      noise: standard deviation of normal noise, added after scaling.
    """

    flip: bool = False
    crop: int = 0
    noise: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Augmentation":
        """Parse a string such as "flip,crop=4,noise=0.05".

        Raises:
          UsageError: it has another form.
        """
        flip, crop, noise = False, 0, 0.0
        for part in filter(None, text.split(",")):
            name, _, number = part.strip().partition("=")
            try:
                if name == "flip" and not number:
                    flip = True
                elif name == "crop":
                    crop = _within(int(number))
                elif name == "noise":
                    noise = _within(float(number))
                else:
                    raise ValueError
            except ValueError:
                raise UsageError(
                    f"augment {part[:40]!r}: expected flip, crop=PIXELS, noise=DEVIATION, such as "
                    "'flip,crop=4,noise=0.05'."
                ) from None
        return cls(flip, crop, noise)


def _within(number):
    if not 0 < number < 2**31:
        raise ValueError
    return number


class Augmented(Wrapped):
    """A source whose "x" is augmented in training, and unchanged in evaluation."""

    def __init__(self, whole: Source, asked: Augmentation) -> None:
        check_known(whole.name, "x", whole.fields)
        axes = len(whole.fields["x"].shape)
        if (asked.flip or asked.crop) and axes < 2:
            raise DataError(
                f"{whole.name}: samples of shape {list(whole.fields['x'].shape)} can't be "
                f"flipped or cropped; expected at least two axes. Leave flip and crop out."
            )
        if asked.noise and whole.fields["x"].dtype.kind != "f":
            raise DataError(
                f"{whole.name}: samples are integers; noise needs floats. Leave "
                f"noise out, or convert the samples."
            )
        super().__init__(whole)
        self.scale = {k: v for k, v in whole.scale.items() if k not in _floats(whole, asked)}
        self._how = asked

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        result, asked = self._whole.read(names, indices, key, train), self._how
        if train and (asked.flip or asked.crop):
            bits = random_bits(key_of(*key, _SHIFT), indices)
            for name, axes in _moved(self.fields, self.pictures).items():
                if name not in names:
                    continue
                ignored = self.ignore_index if name == "y" else self.ignored.get(name)
                fill = 0 if self.fields[name].dtype.kind == "f" else ignored or 0
                result[name] = shifted(result[name], bits, asked, axes, fill)
        for name in _floats(self._whole, asked) & {*names}:
            scale = self._whole.scale.get(name)
            rows = result[name].astype(np.float32)
            rows = rows if scale is None else scale.apply(result[name])
            if train and name == "x":
                rows += np.float32(asked.noise) * normal(key, indices, rows.shape[1:])
            result[name] = rows
        return result


class Mirrored(Wrapped):
    """A source whose target is one of its inputs, for autoencoders."""

    def __init__(self, whole: Source, target: str) -> None:
        if target == "y" or target not in whole.fields:
            inputs = ", ".join(sorted({*whole.fields} - {"y"}))
            raise DataError(
                f"{whole.name}: target {target[:40]!r}: no such input; found {inputs}. "
                "Choose one of these."
            )
        super().__init__(whole)
        self.fields["y"] = whole.fields[target]
        self.classes = self.labels = None
        self.scale = {k: v for k, v in whole.scale.items() if k != "y"}
        if target in whole.scale:
            self.scale["y"] = whole.scale[target]
        self.limits = {k: v for k, v in whole.limits.items() if k != "y"}
        self.target = target

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        wanted = {*names} - {"y"} | ({self.target} if "y" in names else set())
        result = self._whole.read(tuple(sorted(wanted)), indices, key, train)
        return {name: result[self.target if name == "y" else name] for name in names}

    def scan(self, limits: Mapping[str, int], ignore_index: int | None) -> None:
        self._whole.scan({k: v for k, v in limits.items() if k != "y"}, ignore_index)

    def scan_numbers(self, names: Collection[str]) -> None:
        self._whole.scan_numbers({*names} - {"y"} | {self.target})

    def name_targets(self, names: Collection[str]) -> None:
        """Do nothing: its target is an input."""

    def adapt(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._whole.adapt({k: v for k, v in shapes.items() if k != "y"})
        self.fields = {**self._whole.fields, "y": self._whole.fields[self.target]}
        self.note = self._whole.note


def _places(shape: tuple[int, ...], pictures: bool) -> tuple[int, ...]:
    """The axes of "x" that its samples are moved along, counted from the end: (height, width) of a
    picture, whose channels are first or last, otherwise the last axis.

    Channels are last if their number says so, or if only then the picture is square, such as
    [32, 32, 4].
    """
    if len(shape) > 2 and shape[-3] not in CHANNELS:
        square = shape[-3] == shape[-2] > shape[-1]
        if shape[-1] in CHANNELS or square:
            return (-3, -2)
    return (-2, -1) if len(shape) > 2 or pictures else (-1,)


def _moved(fields: Mapping[str, Field], pictures: bool) -> dict[str, tuple[int, ...]]:
    """Fields that move with "x", and their axes: those as wide as it, and as high if it is a
    picture. Floats need two axes, because a vector of them is rather a target for each class."""
    own = fields["x"].shape
    axes = _places(own, pictures)
    size = tuple(own[axis] for axis in axes)
    last = tuple(range(-len(axes), 0))
    result: dict[str, tuple[int, ...]] = {}
    for name, field in fields.items():
        shape = field.shape
        for item in (axes, last):
            fits = len(shape) >= -item[0] and tuple(shape[axis] for axis in item) == size
            if fits and (len(shape) > 1 or field.dtype.kind != "f"):
                result.setdefault(name, item)
    return result


def _floats(source: Source, asked: Augmentation) -> set[str]:
    """Fields scaled here, because noise is added after scaling."""
    return {"x"} if asked.noise else set()


def shifted(
    rows: np.ndarray, bits: np.ndarray, asked: Augmentation, axes: tuple[int, ...], fill: int = 0
) -> np.ndarray:
    """Mirror samples [k, ..] along the last of some axes, and shift them along all.

    Args:
      bits: u64 [k], random: bit 0 decides mirroring, the others the shift.
      axes: width, or height and width, counted from the end.
      fill: value of places outside the sample.
    """
    rows = rows.astype(np.int64) if fill and rows.dtype.kind in "bui" else rows
    result, last = np.full_like(rows, fill), tuple(range(-len(axes), 0))
    rows, out = np.moveaxis(rows, axes, last), np.moveaxis(result, axes, last)
    both, places = len(axes) > 1, np.uint64(2 * asked.crop + 1)
    rights = ((bits >> np.uint64(8)) % places).astype(np.int64) - asked.crop
    downs = ((bits >> np.uint64(36)) % places).astype(np.int64) - asked.crop
    for k in range(len(rows)):
        row = rows[k]
        if asked.flip and int(bits[k]) & 1:
            row = row[..., ::-1]
        to, source = _overlap(int(rights[k]), row.shape[-1])
        if both:
            up, below = _overlap(int(downs[k]), row.shape[-2])
            out[k][..., up, to] = row[..., below, source]
        else:
            out[k][..., to] = row[..., source]
    return result


def _overlap(shift: int, size: int) -> tuple[slice, slice]:
    """Destination and source slices of a shifted axis."""
    shift = max(-size, min(size, shift))
    if shift >= 0:
        return slice(shift, size), slice(0, size - shift)
    return slice(0, size + shift), slice(-shift, size)


def normal(key: tuple[int, int], indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers, float32 [k, *shape], each from its own counter.

    Source: Box and Muller 1958.
    """
    size = math.prod(shape)
    base = key_of(*key, _NOISE)
    counters = np.asarray(indices, np.uint64)[:, None] * np.uint64(size)
    bits = random_bits(base, counters + np.arange(size, dtype=np.uint64))
    first = ((bits >> np.uint64(40)).astype(np.float64) + 1.0) / 2.0**24
    second = (bits & np.uint64(0xFFFFFF)).astype(np.float64) / 2.0**24
    result = np.sqrt(-2.0 * np.log(first)) * np.cos(_TWO_PI * second)
    return result.astype(np.float32).reshape(len(indices), *shape)
