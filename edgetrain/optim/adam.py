"""Adam and AdamW, like torch.optim. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kernels import control
from ..kernels.optimizers.states import FIRST, MOMENT, SECOND, SQUARE, State
from ..units import SMALLEST
from ..units.plugin import option
from .base import Optimizer

if TYPE_CHECKING:
    from ..kernels.optimizers.rule import Arithmetic


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam. Moments have the parameter's storage format; in fp16, the second is stored as its
    square root."""

    name: ClassVar[str] = "adam"
    decoupled: ClassVar[int] = 0
    states: ClassVar = (
        State("moment1", "m", MOMENT, FIRST),
        State("moment2", "v", SQUARE, SECOND),
    )
    numbers: ClassVar[str] = "c1:f b2:f c2:f eps:f wd:f decoupled=flag"
    wide: ClassVar[bool] = True

    lr: float = option(1e-3, "learning rate", "R", least=0)
    beta1: float = option(0.9, "decay of the first moment", "B", least=0, below=1)
    beta2: float = option(0.999, "decay of the second moment", "B", least=0, below=1)
    eps: float = option(1e-8, "added to the denominator", "E", least=SMALLEST)

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta1, self.beta2

    @property
    def adaptive(self) -> bool:
        return self.beta2 > 0

    @property
    def rates(self) -> Mapping[str, float]:
        # 1 - beta2 is a separate operand: from a float32 beta2, its relative error would be 1e-5.
        second = {"b2": self.beta2, "c2": 1.0 - self.beta2}
        return {"c1": 1.0 - self.beta1, **second, "eps": self.eps, "decoupled": self.decoupled}

    @staticmethod
    def arithmetic() -> "Arithmetic":
        """Weight decay is added to the gradient; decoupled decay scales the weight."""
        from ..kernels.language.mathf import sqrt
        from ..kernels.language.prim import ld_f64
        from ..kernels.optimizers.rule import Arithmetic

        one, zero = np.float32(1), np.float32(0)

        def per_step(args, rate):
            step = np.float32(rate / ld_f64(args.ctl, control.BIAS1))
            root_bias = one / np.float32(sqrt(ld_f64(args.ctl, control.BIAS2)))
            added = zero if args.decoupled != 0 else args.wd
            kept = np.float32(1.0 - rate * np.float64(args.wd)) if args.decoupled != 0 else one
            return step, root_bias, added, kept

        def update(args, by, w, g, states):
            (step, root_bias, added, kept), (first, second) = by, states
            g = g + added * w
            first = first + (g - first) * args.c1
            second = second * args.b2 + args.c2 * g * g
            w = w * kept - step * first / (sqrt(second) * root_bias + args.eps)
            return w, (first, second)

        return Arithmetic(per_step, update)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay."""

    name: ClassVar[str] = "adamw"
    decoupled: ClassVar[int] = 1

    weight_decay: float = option(0.01, "decoupled", "W", least=0)
