"""Adagrad, like torch.optim.Adagrad. Source: Duchi, Hazan, Singer 2011."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kernels import control
from ..kernels.optimizers.states import SECOND, SQUARE, State
from ..units import SMALLEST
from ..units.plugin import option
from .base import Optimizer

if TYPE_CHECKING:
    from ..kernels.optimizers.rule import Arithmetic


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """v += g^2; w -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(v) + eps) for update t = 1, 2, ...

    In fp16, v is stored as its square root.
    """

    name: ClassVar[str] = "adagrad"
    states: ClassVar = (State("square", "v", SQUARE, SECOND),)
    numbers: ClassVar[str] = "decay:f eps:f wd:f"
    wide: ClassVar[bool] = True
    usual_lr: ClassVar[str] = "0.01"

    lr: float = option(0.01, "learning rate", "R", least=0)
    lr_decay: float = option(0.0, "decay: lr / (1 + t * D)", "D", least=0)
    eps: float = option(1e-10, "added to the denominator", "E", least=SMALLEST)

    @property
    def rates(self) -> Mapping[str, float]:
        return {"decay": self.lr_decay, "eps": self.eps}

    @staticmethod
    def arithmetic() -> "Arithmetic":
        from ..kernels.language.mathf import sqrt
        from ..kernels.language.prim import ld_i64, to_real
        from ..kernels.optimizers.rule import Arithmetic

        def per_step(args, rate):
            before = to_real(ld_i64(args.ctl, control.ADAM_T) - 1)
            return np.float32(rate / (1.0 + before * np.float64(args.decay)))

        def update(args, lr, w, g, states):
            g = g + args.wd * w
            square = states[0] + g * g
            return w - lr * g / (sqrt(square) + args.eps), (square,)

        return Arithmetic(per_step, update)
