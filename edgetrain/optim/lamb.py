"""LAMB. Source: You et al. 2020, Large Batch Optimization for Deep Learning, algorithm 2."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kernels.optimizers.states import FIRST, MOMENT, SECOND, SQUARE, State
from ..units import SMALLEST
from ..units.plugin import option
from .base import Optimizer

if TYPE_CHECKING:
    from ..kernels.optimizers.rule import Arithmetic


@dataclass(frozen=True)
class Lamb(Optimizer):
    """Adam's step r = m / (sqrt(v) + eps) + weight_decay * w, scaled to the norm of the weight.

    w -= lr * |w| / |r| * r; the factor is 1 if a norm is 0. All sparse layers together count as one
    weight.
    """

    name: ClassVar[str] = "lamb"
    states: ClassVar = (
        State("moment1", "m", MOMENT, FIRST),
        State("moment2", "v", SQUARE, SECOND),
    )
    numbers: ClassVar[str] = "c1:f b2:f c2:f eps:f wd:f"
    wide: ClassVar[bool] = True
    sums: ClassVar[int] = 2

    lr: float = option(1e-3, "learning rate", "R", least=0)
    beta1: float = option(0.9, "decay of the first moment", "B", least=0, below=1)
    beta2: float = option(0.999, "decay of the second moment", "B", least=0, below=1)
    eps: float = option(1e-6, "added to the denominator", "E", least=SMALLEST)
    weight_decay: float = option(0.01, "decoupled", "W", least=0)

    @property
    def rates(self) -> Mapping[str, float]:
        second = {"b2": self.beta2, "c2": 1.0 - self.beta2}
        return {"c1": 1.0 - self.beta1, **second, "eps": self.eps}

    @staticmethod
    def arithmetic() -> "Arithmetic":
        """Norms use the loaded weight, and the step before moments are rounded."""
        from ..kernels.language.inlining import inline
        from ..kernels.language.mathf import sqrt
        from ..kernels.optimizers.counters import bias
        from ..kernels.optimizers.rule import Arithmetic

        def per_step(args, rate):
            biases = bias(args.ctl, args.c1), bias(args.ctl, args.c2)
            return rate, np.float32(1.0 / biases[0]), np.float32(1.0 / sqrt(biases[1]))

        @inline
        def step(args, by, w, g, states):
            (_, mean_bias, root_bias), (first, second) = by, states
            first = first + (g - first) * args.c1
            second = second * args.b2 + args.c2 * g * g
            way = first * mean_bias / (sqrt(second) * root_bias + args.eps) + args.wd * w
            return way, (first, second)

        def terms(args, by, w, g, states):
            way, _ = step(args, by, w, g, states)
            weight, length = np.float64(w), np.float64(way)
            return weight * weight, length * length

        def settle(args, by, sums):
            trust = sqrt(sums[0]) / sqrt(sums[1]) if min(sums[0], sums[1]) > 0.0 else 1.0
            return by, np.float32(by[0] * trust)

        def update(args, by, w, g, states):
            way, states = step(args, by[0], w, g, states)
            return w - by[1] * way, states

        return Arithmetic(per_step, update, terms, settle)
