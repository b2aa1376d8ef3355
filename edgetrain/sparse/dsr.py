"""Dynamic sparse reparameterization: one global threshold, nonzeros move between layers.

Source: Mostafa and Wang 2019; Low-Memory Neural Network Training (report), section 3.1, appendix
A.3.1 and Tables 5, 8. Known limits: the momentum that is reset is the pool's, dense parameters
keep theirs; a layer may grow to 1.5 times its first share. The report starts its threshold at
0.001 and doubles it until it drops enough, which costs a short run most of its rewirings.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ..errors import UsageError
from ..formats.csr import Layer
from .rewiring import PERIODS, Rewiring

# Density -> (multiplier of the fraction, multiplier of the frequency): the report's Table 8.
TABLE8 = {
    0.5: (4.0, 0.5),
    0.4: (1.0, 2.0),
    0.3: (2.0, 0.5),
    0.2: (2.0, 1.0),
    0.1: (1.0, 0.5),
    0.05: (1.0, 0.25),
}
FRACTION = 0.01377866
MOST = 0.3  # of the nonzeros; the report's own aims are below it down to density 0.05
REPORTED_THRESHOLD = 1e-3  # Table 5; where the first weights tell nothing


@dataclass(frozen=True)
class DSR(Rewiring):
    """Drop what is below the threshold; the same number grows, shared by surviving nonzeros.

    Attributes:
      fraction: of the elements of the sparse weights that a rewiring aims to drop, never more than
        MOST of the nonzeros; None: the report's for the nearest density of its Table 8, as is
        `long_frequency`.
      threshold: magnitude below which the first rewiring drops; None: the one below which the
        aimed number of first weights lies.
      factor: the threshold is multiplied (too few dropped) or divided (too many) by it.
      tolerance: relative departure from the aim that leaves the threshold alone.
    """

    name: ClassVar[str] = "dsr"

    fraction: float | None = None
    threshold: float | None = None
    factor: float = 2.0
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction = FRACTION if self.fraction is None else self.fraction
        starts = self.threshold is None or 0 < self.threshold < math.inf
        steady = 1 <= self.factor < math.inf and 0 <= self.tolerance < math.inf
        if not (0 < fraction < 1 and starts and steady):
            raise UsageError(
                f"rewiring dsr: fraction {self.fraction}, threshold {self.threshold}, factor "
                f"{self.factor}, tolerance {self.tolerance}; expected 0 to 1, above 0, 1 or more, "
                "0 or more."
            )

    def fitted(self, layers: Sequence[Layer], adaptive: bool) -> Self:
        """The report's choice for the nearest density of its Table 8."""
        density = sum(layer.share for layer in layers) / sum(layer.size for layer in layers)
        fraction, frequency = TABLE8[min(TABLE8, key=lambda d: abs(d - density))]
        if self.periods != PERIODS:
            frequency = 1.0
        chosen = dataclasses.replace(
            self,
            fraction=FRACTION * fraction if self.fraction is None else self.fraction,
            long_frequency=frequency if self.long_frequency is None else self.long_frequency,
        )
        return super(DSR, chosen).fitted(layers, adaptive)

    def first_threshold(self, weights: np.ndarray, layers: Sequence[Layer]) -> float:
        """`threshold`, or the quantile of the first weights that drops the aimed number."""
        if self.threshold is not None:
            return self.threshold
        sizes = np.abs(weights[weights != 0])
        aim = min(self._target(layers), len(sizes) - 1)
        return float(np.partition(sizes, aim)[aim]) if aim > 0 else REPORTED_THRESHOLD

    def _target(self, layers: Sequence[Layer]) -> int:
        fraction = FRACTION if self.fraction is None else self.fraction
        aim = round(fraction * sum(layer.size for layer in layers))
        return max(1, min(aim, round(MOST * sum(layer.share for layer in layers))))

    def _fraction(self) -> float:
        return 0.0

    def _share(self, layers: Sequence[Layer]) -> dict[str, float]:
        target = self._target(layers)
        return {"target": target, "tolerance": self.tolerance, "factor": self.factor, "own": 0}
