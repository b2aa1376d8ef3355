"""Pinball loss, for forecasts with an interval. Source: Koenker and Bassett 1978."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError
from ..units.plugin import option
from .base import Loss, Shape

if TYPE_CHECKING:  # parsers use losses without numpy
    import numpy as np


@dataclass(frozen=True)
class Quantile(Loss):
    """max(q * d, (q - 1) * d) with d = target - output; the mean over the quantiles q.

    With several quantiles, the output's last axis has one number per quantile, and targets lack
    this axis. With one quantile, targets have the output's shape.
    """

    name: ClassVar[str] = "quantile"

    quantiles: tuple[float, ...] = option(
        (0.5,), "levels, one per number of the output's last axis", "Q,..", least=0, most=1
    )

    @property
    def kernel(self) -> str:
        return "quantile"

    def target_shape(self, shape: Shape) -> Shape:
        levels = len(self.quantiles)
        if levels == 1:
            return shape
        if len(shape) < 2 or shape[-1] != levels:
            raise UsageError(
                f"loss quantile: {levels} quantiles, but the output has shape {list(shape)}; "
                f"expected a last axis of {levels}. Pass one quantile per number."
            )
        return shape[:-1]

    def arrays(self, shape: Shape) -> dict[str, "np.ndarray"]:
        import numpy as np

        return {"q": np.array(self.quantiles, np.float32)}

    def numbers(self, shape: Shape) -> dict[str, Any]:
        own = super().numbers(self.target_shape(shape))
        return own | {"m": len(self.quantiles)}

    def sample(self, shape: Shape, draw: "np.random.Generator") -> "np.ndarray":
        return super().sample(self.target_shape(shape), draw)
