"""Dynamic sparse reparameterization: one global threshold; nonzeros move between layers.

Source: Mostafa and Wang 2019; Low-Memory Neural Network Training (report), section 3.1, appendix
A.3.1 and Tables 5, 8. Known limits: only the momentum of sparse weights is reset, not that of dense
ones; a layer may grow to at most 1.5 times its initial size. The report starts the threshold at
0.001 and doubles it until enough is dropped, which costs a short run most of its rewirings.
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
MOST = 0.3  # of the nonzeros; the report's own goals are below this down to density 0.05
REPORTED_THRESHOLD = 1e-3  # Table 5; used if the initial weights give no threshold


@dataclass(frozen=True)
class DSR(Rewiring):
    """Drop nonzeros below a threshold and grow as many, in proportion to surviving nonzeros.

    Attributes:
      fraction: fraction of the sparse weights' elements to drop in a rewiring, at most MOST of the
        nonzeros. None: the report's value for the nearest density in its Table 8; the same applies
        to `long_frequency`.
      threshold: threshold of the first rewiring; None: the threshold that drops `fraction` of the
        initial weights.
      factor: factor or divisor of the threshold after too few or too many drops.
      tolerance: relative deviation from the goal that keeps the threshold.
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
                f"{self.factor}, tolerance {self.tolerance}; expected 0 < fraction < 1, "
                "threshold > 0, factor >= 1, tolerance >= 0."
            )

    def fitted(self, layers: Sequence[Layer], adaptive: bool) -> Self:
        """The method with the report's values for the nearest density in its Table 8."""
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
        """`threshold`, or the quantile of the initial weights that drops the desired number."""
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
