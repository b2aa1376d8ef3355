"""Lion. Source: Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2."""

from dataclasses import dataclass
from typing import ClassVar

from ..ir import Call, Value
from ..units.plugin import option
from .base import Optimizer


@dataclass(frozen=True)
class Lion(Optimizer):
    """w -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w); m moves by beta2."""

    name: ClassVar[str] = "lion"

    lr: float = option(1e-4, "learning rate", "R", least=0)
    beta1: float = option(0.9, "share of the momentum in a step's direction", "B", least=0, below=1)
    beta2: float = option(0.99, "decay of the momentum", "B", least=0, below=1)

    def init(self, parameter: Value) -> list[Value]:
        return [self._state(parameter, "momentum")]

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> list[Call]:
        args = self._operands(parameter, grad, key)
        args |= {"m": state[0].name, "b1": self.beta1, "c1": 1.0 - self.beta1}
        args |= {"b2": self.beta2, "c2": 1.0 - self.beta2}
        return [Call("lion", args)]
