"""Sparse evolutionary training: each layer drops its smallest weights and grows as many new ones.

Source: Mocanu et al. 2018. Here "smallest" means smallest magnitude, regardless of sign.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..errors import UsageError
from ..formats.csr import Layer
from .rewiring import Rewiring


@dataclass(frozen=True)
class SET(Rewiring):
    """Drop `fraction` of each layer's nonzeros; the number per layer stays the same."""

    name: ClassVar[str] = "set"

    fraction: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.fraction < 1:
            raise UsageError(
                f"rewiring set: fraction {self.fraction}; expected a number between 0 and 1."
            )

    def _fraction(self) -> float:
        return self.fraction

    def _share(self, layers: Sequence[Layer]) -> dict[str, float]:
        return {"target": 0, "tolerance": 0.0, "factor": 1.0, "own": 1}
