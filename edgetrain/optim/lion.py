"""Lion. Source: Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kernels.optimizers.states import FIRST, MOMENT, State
from ..units.plugin import option
from .base import Optimizer

if TYPE_CHECKING:
    from ..kernels.optimizers.rule import Arithmetic


@dataclass(frozen=True)
class Lion(Optimizer):
    """w -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w); m decays by beta2."""

    name: ClassVar[str] = "lion"
    states: ClassVar = (State("momentum", "m", MOMENT, FIRST),)
    numbers: ClassVar[str] = "b1:f c1:f b2:f c2:f wd:f"
    wide: ClassVar[bool] = True
    usual_lr: ClassVar[str] = "1e-4"

    lr: float = option(1e-4, "learning rate", "R", least=0)
    beta1: float = option(0.9, "weight of momentum in the step direction", "B", least=0, below=1)
    beta2: float = option(0.99, "decay of the momentum", "B", least=0, below=1)
    weight_decay: float = option(0.0, "decoupled", "W", least=0)

    @property
    def rates(self) -> Mapping[str, float]:
        second = {"b2": self.beta2, "c2": 1.0 - self.beta2}
        return {"b1": self.beta1, "c1": 1.0 - self.beta1, **second}

    @staticmethod
    def arithmetic() -> "Arithmetic":
        """The sign of 0 is 0."""
        from ..kernels.language.number import where
        from ..kernels.optimizers.rule import Arithmetic

        one, zero = np.float32(1), np.float32(0)

        def per_step(args, rate):
            return np.float32(rate), np.float32(1.0 - rate * np.float64(args.wd))

        def update(args, by, w, g, states):
            (lr, kept), momentum = by, states[0]
            toward = args.b1 * momentum + args.c1 * g
            sign = where(toward > zero, one, where(toward < zero, -one, zero))
            return w * kept - lr * sign, (args.b2 * momentum + args.c2 * g,)

        return Arithmetic(per_step, update)
