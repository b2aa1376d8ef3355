"""Triplet margin loss, like torch's TripletMarginLoss with p = 2."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import UsageError
from ..units.plugin import option
from .base import Loss, Shape


@dataclass(frozen=True)
class Triplet(Loss):
    """max(|a - p| - |a - n| + margin, 0) of an output [batch, 3, width]; it takes no target.

    A sample is a triplet: along axis 1, the output has the vectors of an anchor, of a positive
    (same class) and of a negative (another class). Export such a model as
    `torch.stack([net(anchor), net(positive), net(negative)], 1)`, with three inputs that the data
    names. Samples are independent, so a minibatch may be split.
    """

    name: ClassVar[str] = "triplet"
    takes_target: ClassVar[bool] = False

    margin: float = option(1.0, "how much further a negative should be", "M", least=0)
    swap: bool = option(False, "compare the negative with the positive if that is nearer")

    @property
    def kernel(self) -> str:
        return "triplet"

    def target_shape(self, shape: Shape) -> Shape:
        return shape[:1]

    def joined_axes(self, shape: Shape) -> tuple[int, ...]:
        return tuple(range(1, len(shape)))

    def numbers(self, shape: Shape) -> dict[str, Any]:
        if len(shape) != 3 or shape[1] != 3:
            raise UsageError(
                f"loss triplet: an output of shape {list(shape)}; expected [{shape[0]}, 3, width], "
                "the vectors of anchor, positive and negative. Stack them along axis 1."
            )
        own = {"m": math.prod(shape[2:]), "swap": int(self.swap), "p": self.margin}
        return {"n": shape[0]} | own
