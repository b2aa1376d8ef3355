"""Soft Dice loss of segmentations. Source: Milletari et al. 2016, "V-Net", section 3."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..units.plugin import option
from .base import Shape, within_one
from .class_axis import ByClass

if TYPE_CHECKING:  # parsers use losses without numpy
    import numpy as np


@dataclass(frozen=True)
class Dice(ByClass):
    """1 - (2 * sum(p * t) + s) / (sum(p) + sum(t) + s) for each class, where s is dice_smooth.

    The sums are over all positions of one sample (every axis but batch and classes). The loss is
    the mean over the classes, including the background, and over the samples, as in MONAI's
    DiceLoss; segmentation_models_pytorch and nnU-Net's batch_dice also sum over the batch, so their
    loss is not a mean over samples. p is the softmax over the class axis, and targets are class
    indices in the output's shape without that axis. With one class, or with `multilabel`, p is the
    sigmoid of each number, and targets are 0 or 1 in the output's shape. Positions with target
    `ignore_index` are left out of the sums.
    """

    name: ClassVar[str] = "dice"
    absorbs: ClassVar[tuple[str, ...]] = ("softmax", "sigmoid")
    target_dtype: ClassVar[str] = "i32"
    each_sample: ClassVar[bool] = True

    dice_smooth: float = option(1.0, "added to numerator and denominator of Dice", "S", least=0)
    multilabel: bool = option(False, "one mask per class (sigmoid; targets 0 or 1)")
    ignore_index: int = option(-100, "target value to ignore", "I")
    class_axis: int | None = option(None, "class axis (default: 1; of 3-D outputs the last)", "A")

    @property
    def kernel(self) -> str:
        return "dice"

    def absorbed(self, shape: Shape) -> tuple[str, ...]:
        return ("sigmoid",) if self._apart(shape) else ("softmax",)

    def doubt(self, output: "np.ndarray") -> str:
        if not within_one(output):
            return ""
        return (
            "the output is between 0 and 1, like probabilities, but dice expects logits. Train the "
            "output before the softmax or sigmoid (--output)."
        )

    def _apart(self, shape: Shape) -> bool:
        """Whether each number is an independent probability (sigmoid)."""
        return self.multilabel or shape[self.axis(shape)] == 1

    def is_binary(self, shape: Shape) -> bool:
        return self._apart(shape)

    def classes_on(self, shape: Shape) -> int | None:
        return None if self._apart(shape) else self.axis(shape)

    def target_shape(self, shape: Shape) -> Shape:
        return shape if self._apart(shape) else super().target_shape(shape)

    def target_batch(self, shape: Shape, batch: int) -> int:
        return batch if self._apart(shape) else super().target_batch(shape, batch)

    def limit(self, shape: Shape) -> int:
        return 2 if self._apart(shape) else super().limit(shape)

    def for_target(self, target: Shape, output: Callable[[], Shape], batch: int = 0) -> Self:
        if self.multilabel or self._apart(output()):
            return self
        return super().for_target(target, output, batch)

    def joined_axes(self, shape: Shape) -> tuple[int, ...]:
        return tuple(range(1, len(shape)))

    def numbers(self, shape: Shape) -> dict[str, Any]:
        axis = self.axis(shape)
        each, inner = math.prod(shape[1:axis]), math.prod(shape[axis + 1 :])
        own = {"rows": each, "c": shape[axis], "inner": inner, "own": int(self._apart(shape))}
        return {"n": shape[0]} | own | {"p": self.dice_smooth, "ignore": self.ignore_index}

    def sample(self, shape: Shape, draw: "np.random.Generator") -> "np.ndarray":
        return draw.integers(0, self.limit(shape), self.target_shape(shape)).astype("int32")
