"""The model's output is the loss: targets, if any, are inputs of the model."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import UsageError
from .base import Loss, Shape


@dataclass(frozen=True)
class Output(Loss):
    """The mean of the output: one or more numbers per sample, or a single number, the mean over the
    samples of a microbatch.

    With a single number, the samples that pad the last microbatch of an evaluation can't be left
    out: its mean, padding included, counts for the remaining samples.
    """

    name: ClassVar[str] = "output"
    takes_target: ClassVar[bool] = False
    of_model: ClassVar[bool] = True

    def takes_mean(self, shape: Shape) -> bool:
        return math.prod(shape) == 1

    def target_shape(self, shape: Shape) -> Shape:
        return shape or (1,)

    @property
    def kernel(self) -> str:
        return "output"

    def numbers(self, shape: Shape) -> dict[str, Any]:
        if self.sample_weights and self.takes_mean(shape):
            raise UsageError(
                "loss output: the model returns one number for all samples, so they can't be "
                "weighted. Leave sample_weights out, or return one number per sample."
            )
        size = math.prod(shape)
        return {"n": size, "rows": size // shape[0] if shape else 1}
