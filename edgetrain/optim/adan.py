"""Adan, like the authors' code. Source: Xie et al. 2022, Adaptive Nesterov Momentum, alg. 1."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kernels.optimizers.states import FIRST, FOURTH, MOMENT, SECOND, SQUARE, THIRD, State
from ..units import SMALLEST
from ..units.plugin import option
from .base import Optimizer

if TYPE_CHECKING:
    from ..kernels.optimizers.rule import Arithmetic


@dataclass(frozen=True)
class Adan(Optimizer):
    """Keeps moments of the gradient g, of its change d = g - g_before, and of (g + beta2 * d)^2.

    w = (w - (lr * m + lr * beta2 * v) / (sqrt(n) + eps)) / (1 + lr * weight_decay), with each
    moment divided by its bias correction 1 - beta ** t.
    """

    name: ClassVar[str] = "adan"
    states: ClassVar = (
        State("moment1", "m", MOMENT, FIRST),
        State("change", "d", MOMENT, THIRD),
        State("moment2", "v", SQUARE, SECOND),
        State("before", "p", MOMENT, FOURTH),
    )
    numbers: ClassVar[str] = "c1:f b2:f c2:f b3:f c3:f eps:f wd:f"
    wide: ClassVar[bool] = True

    lr: float = option(1e-3, "learning rate", "R", least=0)
    beta1: float = option(0.98, "decay of the first moment", "B", least=0, below=1)
    beta2: float = option(0.92, "decay of the mean gradient difference", "B", least=0, below=1)
    beta3: float = option(0.99, "decay of the second moment", "B", least=0, below=1)
    eps: float = option(1e-8, "added to the denominator", "E", least=SMALLEST)
    weight_decay: float = option(0.0, "decoupled", "W", least=0)

    @property
    def rates(self) -> Mapping[str, float]:
        means = {"c1": 1.0 - self.beta1, "b2": self.beta2, "c2": 1.0 - self.beta2}
        return {**means, "b3": self.beta3, "c3": 1.0 - self.beta3, "eps": self.eps}

    @staticmethod
    def arithmetic() -> "Arithmetic":
        """In the first update the gradient difference is 0."""
        from ..kernels.language.mathf import sqrt
        from ..kernels.optimizers.counters import bias, is_first
        from ..kernels.optimizers.rule import Arithmetic

        def per_step(args, rate):
            step = np.float32(rate / bias(args.ctl, args.c1))
            along = np.float32(rate * np.float64(args.b2) / bias(args.ctl, args.c2))
            root_bias = np.float32(1.0 / sqrt(bias(args.ctl, args.c3)))
            kept = np.float32(1.0 / (1.0 + rate * np.float64(args.wd)))
            return step, along, root_bias, kept, np.float32(0 if is_first(args.ctl) else 1)

        def update(args, by, w, g, states):
            step, along, root_bias, kept, known = by
            mean, change, square, before = states
            moved = (g - before) * known
            ahead = g + args.b2 * moved
            mean = mean + (g - mean) * args.c1
            change = change + (moved - change) * args.c2
            square = square * args.b3 + args.c3 * ahead * ahead
            way = step * mean + along * change
            w = (w - way / (sqrt(square) * root_bias + args.eps)) * kept
            return w, (mean, change, square, g)

        return Arithmetic(per_step, update)
