"""Cosine distance: 1 - cosine similarity, like torch's CosineEmbeddingLoss for targets of 1."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import UsageError
from .base import Loss, Shape


@dataclass(frozen=True)
class Cosine(Loss):
    """1 - x . t / (|x| |t|) over the last axis of outputs x and targets t.

    Norms below 1e-8 count as 1e-8.
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
                f"loss cosine: the output has shape {list(shape)}; expected vectors: a last axis "
                "of at least 2 after the batch. Use --loss mse for single values."
            )
        vectors = math.prod(shape[:-1])
        return {"n": vectors, "m": shape[-1], "rows": vectors // shape[0]}
