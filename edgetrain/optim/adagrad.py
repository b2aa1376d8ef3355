"""Adagrad, as torch.optim.Adagrad. Source: Duchi, Hazan, Singer 2011."""

from dataclasses import dataclass
from typing import ClassVar

from ..ir import Call, Value
from ..units import SMALLEST
from ..units.plugin import option
from .base import Optimizer


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """v += g^2; w -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(v) + eps).

    In fp16 v is kept as its square root.
    """

    name: ClassVar[str] = "adagrad"
    roots: ClassVar[tuple[str, ...]] = ("square",)

    lr: float = option(0.01, "learning rate", "R", least=0)
    lr_decay: float = option(0.0, "by which the rate falls with the updates", "D", least=0)
    eps: float = option(1e-10, "added to the divisor", "E", least=SMALLEST)

    @property
    def adaptive(self) -> bool:
        return True

    def init(self, parameter: Value) -> list[Value]:
        return [self._state(parameter, "square")]

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> list[Call]:
        args = self._operands(parameter, grad, key)
        args |= {"v": state[0].name, "decay": self.lr_decay, "eps": self.eps}
        return [Call("adagrad", args)]
