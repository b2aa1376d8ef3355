"""Cosine distance of vectors: 1 - cosine similarity, as torch's CosineEmbeddingLoss of equals."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import UsageError
from .base import Loss, Shape


@dataclass(frozen=True)
class Cosine(Loss):
    """1 - x . t / (|x| |t|) of the output's last axis, in which targets have their vectors too.

    Lengths below 1e-8 count as 1e-8.
    """

    name: ClassVar[str] = "cosine"

    @property
    def kernel(self) -> str:
        return "cosine"

    def joined_axes(self, shape: Shape) -> tuple[int, ...]:
        return (len(shape) - 1,)

    def numbers(self, shape: Shape) -> dict[str, Any]:
        if len(shape) < 2 or shape[-1] < 2:
            raise UsageError(
                f"loss cosine: an output of shape {list(shape)} has no vectors; expected a last "
                "axis of 2 or more after the batch. Choose --loss mse for single values."
            )
        vectors = math.prod(shape[:-1])
        return {"n": vectors, "m": shape[-1], "rows": vectors // shape[0]}
