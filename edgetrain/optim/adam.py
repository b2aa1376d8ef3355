"""Adam and AdamW, as torch.optim. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019."""

from dataclasses import dataclass
from typing import ClassVar

from ..ir import Call, Value
from ..units import SMALLEST
from ..units.plugin import option
from .base import Optimizer


@dataclass(frozen=True)
class Adam(Optimizer):
    """Moments in the parameter's storage; in fp16 the second one is kept as its square root."""

    name: ClassVar[str] = "adam"
    decoupled: ClassVar[int] = 0
    roots: ClassVar[tuple[str, ...]] = ("moment2",)

    lr: float = option(1e-3, "learning rate", "R", least=0)
    beta1: float = option(0.9, "decay of the mean gradient", "B", least=0, below=1)
    beta2: float = option(0.999, "decay of the second moment", "B", least=0, below=1)
    eps: float = option(1e-8, "added to the divisor", "E", least=SMALLEST)

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta1, self.beta2

    @property
    def adaptive(self) -> bool:
        return self.beta2 > 0

    def init(self, parameter: Value) -> list[Value]:
        return [self._state(parameter, "moment1"), self._state(parameter, "moment2")]

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> list[Call]:
        args = self._operands(parameter, grad, key)
        args |= {"m": state[0].name, "v": state[1].name, "decoupled": self.decoupled}
        args |= {"c1": 1.0 - self.beta1, "b2": self.beta2, "c2": 1.0 - self.beta2, "eps": self.eps}
        return [Call("adam", args)]


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay."""

    name: ClassVar[str] = "adamw"
    decoupled: ClassVar[int] = 1

    weight_decay: float = option(0.01, "decoupled", "W", least=0)
