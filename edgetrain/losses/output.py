"""The model's own output as the loss: it takes no target besides the model's inputs."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import UsageError
from .base import Loss, Shape


@dataclass(frozen=True)
class Output(Loss):
    """The mean of the output: one number or several for each sample, or a single one, which is the
    mean over the samples of a microbatch.

    A single number cannot be told apart by sample: where the last microbatch of an evaluation is
    filled up, what fills it is in that mean, which counts for the samples that are left.
    """

    name: ClassVar[str] = "output"
    takes_target: ClassVar[bool] = False

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
                "loss output: the model gives one number for all samples, which cannot be weighed "
                "apart. Leave sample_weights out, or give one number for each sample."
            )
        size = math.prod(shape)
        return {"n": size, "rows": size // shape[0] if shape else 1}
