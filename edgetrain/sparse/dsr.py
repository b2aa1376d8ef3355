"""Dynamic sparse reparameterization: one global threshold, nonzeros move between layers.

Source: Mostafa and Wang 2019; Low-Memory Neural Network Training (report), section 3.1, appendix
A.3.1 and Tables 5, 8. Known limits: the momentum that is reset is the pool's, dense parameters
keep theirs; a layer may grow to 1.5 times its first share. The report starts its threshold at
0.001 and doubles it until it drops enough, which costs a short run most of its rewirings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import UsageError
from ..storage.csr import Layer
from .rewiring import Rewiring

# Density -> (multiplier of the fraction, multiplier of the frequency): the report's Table 8.
TABLE8 = {
    0.5: (4.0, 0.5), 0.4: (1.0, 2.0), 0.3: (2.0, 0.5), 0.2: (2.0, 1.0), 0.1: (1.0, 0.5),
    0.05: (1.0, 0.25),
}  # fmt: skip
FRACTION = 0.01377866
REPORTED_THRESHOLD = 1e-3  # Table 5; where the first weights tell nothing


@dataclass(frozen=True)
class DSR(Rewiring):
    """Drop what is below the threshold; the same number grows, shared by surviving nonzeros.

    Attributes:
      threshold: magnitude below which the first rewiring drops; None: the one below which the
        aimed number of first weights lies.
      fraction: of the elements of the sparse weights that a rewiring aims to drop.
      factor: the threshold is multiplied (too few dropped) or divided (too many) by it.
      tolerance: relative departure from the aim that leaves the threshold alone.
    """

    name: ClassVar[str] = "dsr"

    threshold: float | None = None
    fraction: float = FRACTION
    factor: float = 2.0
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        starts = self.threshold is None or self.threshold > 0
        if not (0 < self.fraction < 1 and starts and self.factor >= 1):
            raise UsageError(
                f"rewiring dsr: fraction {self.fraction}, threshold {self.threshold}, factor "
                f"{self.factor}; expected 0 to 1, above 0, 1 or more."
            )

    @classmethod
    def for_density(cls, density: float) -> "DSR":
        """The report's choice for the nearest density of its Table 8."""
        nearest = min(TABLE8, key=lambda d: abs(d - density))
        fraction, frequency = TABLE8[nearest]
        return cls(fraction=FRACTION * fraction, frequency=frequency)

    def first_threshold(self, weights: np.ndarray, layers: Sequence[Layer]) -> float:
        """`threshold`, or the quantile of the first weights that drops the aimed number."""
        if self.threshold is not None:
            return self.threshold
        sizes = np.abs(weights[weights != 0])
        aim = min(self._target(layers), len(sizes) - 1)
        return float(np.partition(sizes, aim)[aim]) if aim > 0 else REPORTED_THRESHOLD

    def _target(self, layers: Sequence[Layer]) -> int:
        return max(1, round(self.fraction * sum(layer.size for layer in layers)))

    def _fraction(self) -> float:
        return 0.0

    def _share(self, layers: Sequence[Layer]) -> dict[str, float]:
        target = self._target(layers)
        return {"target": target, "tolerance": self.tolerance, "factor": self.factor, "own": 0}
