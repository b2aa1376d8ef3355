"""RMSprop, like torch.optim.RMSprop. Source: Tieleman and Hinton 2012; Graves 2013 (centered)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..formats import BLOCKED
from ..ir import Value
from ..kernels.optimizers.states import FIRST, MOMENT, PLAIN, SECOND, SQUARE, THIRD, State
from ..units import SMALLEST
from ..units.plugin import option
from .base import Optimizer

if TYPE_CHECKING:
    from ..kernels.optimizers.rule import Arithmetic


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """v = alpha * v + (1 - alpha) * g^2; w -= lr * g / (sqrt(v) + eps), optionally with momentum.

    In fp16, v is stored as its square root. The centered form subtracts `mean` from `square`, for
    which 8-bit blocks are too coarse: both are then stored in fp32.
    """

    name: ClassVar[str] = "rmsprop"
    states: ClassVar = (
        State("square", "v", SQUARE, SECOND),
        # momentum of steps, which are about 1 whatever the gradients
        State("momentum", "m", PLAIN, FIRST, optional=True),
        State("mean", "v_mean", MOMENT, THIRD, optional=True),
    )
    numbers: ClassVar[str] = "alpha:f c:f eps:f wd:f mu:f"
    wide: ClassVar[bool] = True

    lr: float = option(0.01, "learning rate", "R", least=0)
    alpha: float = option(0.99, "decay of the mean square", "A", least=0, below=1)
    eps: float = option(1e-8, "added to the denominator", "E", least=SMALLEST)
    momentum: float = option(0.0, "momentum", "M", least=0, below=1)
    centered: bool = option(False, "divide by the standard deviation, not the root mean square")

    def keeps(self, state: State) -> bool:
        return self.centered if state.tag == "mean" else self.momentum != 0

    def init(self, parameter: Value) -> list[Value]:
        states = super().init(parameter)
        if not self.centered or parameter.dtype not in BLOCKED:
            return states
        momentum = f"{parameter.name}.momentum"
        return [s if s.name == momentum else replace(s, dtype="f32") for s in states]

    @property
    def rates(self) -> Mapping[str, float]:
        mean = {"alpha": self.alpha, "c": 1.0 - self.alpha}
        return {**mean, "eps": self.eps, "mu": self.momentum}

    @staticmethod
    def arithmetic() -> "Arithmetic":
        from ..kernels.language.mathf import sqrt
        from ..kernels.language.number import where
        from ..kernels.optimizers.rule import Arithmetic

        zero = np.float32(0)

        def per_step(args, rate):
            return np.float32(rate)

        def update(args, lr, w, g, states):
            square, momentum, mean = states
            g = g + args.wd * w
            square = square * args.alpha + args.c * g * g
            spread = square
            if args.v_mean != 0:
                mean = mean + (g - mean) * args.c
                spread = square - mean * mean
                spread = where(spread > zero, spread, zero)
            step = g / (sqrt(spread) + args.eps)
            if args.m != 0:
                step = step + args.mu * momentum
                momentum = step
            return w - lr * step, (square, momentum, mean)

        return Arithmetic(per_step, update)
