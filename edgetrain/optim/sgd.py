"""Stochastic gradient descent, like torch.optim.SGD. Source: Sutskever 2013 (Nesterov)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import UsageError
from ..kernels import control
from ..kernels.optimizers.states import FIRST, MOMENT, State
from ..units.plugin import option
from .base import Optimizer

if TYPE_CHECKING:
    from ..kernels.optimizers.rule import Arithmetic


@dataclass(frozen=True)
class SGD(Optimizer):
    """v = momentum * v + (1 - dampening) * g; w -= lr * v; Nesterov: lr * (g + momentum * v)."""

    name: ClassVar[str] = "sgd"
    states: ClassVar = (State("momentum", "v", MOMENT, FIRST, optional=True),)
    numbers: ClassVar[str] = "mu:f wd:f dampening:f nesterov=flag"
    wide: ClassVar[bool] = True
    usual_lr: ClassVar[str] = "0.01"

    momentum: float = option(0.0, "momentum", "M", least=0, below=1)
    nesterov: bool = option(False, "Nesterov momentum")
    dampening: float = option(0.0, "dampening of momentum", "D", least=0, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.dampening != 0:
            raise UsageError(
                f"optimizer sgd: dampening {self.dampening} cannot be combined with "
                f"nesterov. Leave one of them out."
            )

    def keeps(self, state: State) -> bool:
        return self.momentum != 0

    @property
    def rates(self) -> Mapping[str, float]:
        own = {"dampening": self.dampening, "nesterov": int(self.nesterov)}
        return {"mu": self.momentum, **own}

    @staticmethod
    def arithmetic() -> "Arithmetic":
        """The first momentum is the gradient, without dampening."""
        from ..kernels.language.prim import ld_i64
        from ..kernels.optimizers.rule import Arithmetic

        one, zero = np.float32(1), np.float32(0)

        def per_step(args, rate):
            share = one if ld_i64(args.ctl, control.ADAM_T) == 1 else one - args.dampening
            # nesterov: direction = gradient + mu * momentum, else = momentum
            of_gradient, of_moment = (one, args.mu) if args.nesterov != 0 else (zero, one)
            return np.float32(rate), share, of_gradient, of_moment

        def update(args, by, w, g, states):
            lr, share, of_gradient, of_moment = by
            step, moment = g + args.wd * w, states[0]
            if args.v != 0:
                moment = args.mu * moment + share * step
                step = of_gradient * step + of_moment * moment
            return w - lr * step, (moment,)

        return Arithmetic(per_step, update)
