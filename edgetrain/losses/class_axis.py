"""Losses whose targets are classes: one axis of the output has a number for each class."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Self

from ..errors import UsageError
from .base import Loss, Shape


class ByClass(Loss):
    """Base class of losses with an option `class_axis`.

    Attributes:
      class_axis: axis of the output, counting the batch as axis 0; None: 1, or the last axis of
        a 3-d output (a sequence model's [batch, time, classes]).
    """

    class_axis: int | None

    def axis(self, shape: Shape) -> int:
        """The class axis of an output of this shape."""
        axis = self.class_axis
        if axis is None:
            axis = 2 if len(shape) == 3 else 1
        if not 0 < axis < max(2, len(shape)) or len(shape) < 2:
            raise UsageError(
                f"class axis {axis} for an output of shape {list(shape)}; expected an axis from 1 "
                f"to {len(shape) - 1}."
            )
        return axis

    def target_shape(self, shape: Shape) -> Shape:
        axis = self.axis(shape)
        return (*shape[:axis], *shape[axis + 1 :])

    def target_batch(self, shape: Shape, batch: int) -> int:
        return batch - (self.axis(shape) <= batch)

    def classes_on(self, shape: Shape) -> int | None:
        return self.axis(shape)

    def limit(self, shape: Shape) -> int:
        return shape[self.axis(shape)]

    def for_target(self, target: Shape, output: Callable[[], Shape], batch: int = 0) -> Self:
        """The loss with the class axis that the target lacks; if several fit, the default one or
        else the first."""
        if self.class_axis is not None:
            return self
        shape = output()
        default = self.axis(shape) if len(shape) > 1 else 1
        for axis in (default, *range(1, len(shape))):
            rest, axis_at = [*shape[:axis], *shape[axis + 1 :]], batch - (axis <= batch)
            rest.insert(axis_at, rest.pop(0))
            if tuple(rest) == tuple(target):
                changed: Any = {"class_axis": axis}
                return dataclasses.replace(self, **changed)
        whole = [*shape[1 : batch + 1], shape[0], *shape[batch + 1 :]]
        raise UsageError(
            f"target has shape {list(target)}; expected the output's shape {whole} without its "
            "class axis."
        )

    def absorbs_over(self, shape: Shape, n: int, step: int) -> bool:
        if len(shape) < 2:
            return True
        axis = self.axis(shape)
        return shape[axis] == n and (math.prod(shape[axis + 1 :]) == step or n == 1)
