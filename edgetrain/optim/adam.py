"""Adam and AdamW, as torch.optim. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019."""

from dataclasses import dataclass
from typing import ClassVar

from ..ir import Call, Value
from ..units import SMALLEST
from .base import Optimizer


@dataclass(frozen=True)
class Adam(Optimizer):
    """Moments in the parameter's storage; in fp16 the second one is kept as its square root."""

    name: ClassVar[str] = "adam"
    decoupled: ClassVar[int] = 0

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._within("beta1", least=0, below=1)
        self._within("beta2", least=0, below=1)
        self._within("eps", least=SMALLEST)

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta1, self.beta2

    def init(self, parameter: Value) -> list[Value]:
        return [self._state(parameter, "moment1"), self._state(parameter, "moment2")]

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> Call:
        args: dict = {"w": parameter.name, "g": grad.name, "ctl": "ctl", "key": key}
        args |= {"m": state[0].name, "v": state[1].name, "n": parameter.size}
        args |= {"c1": 1.0 - self.beta1, "b2": self.beta2, "c2": 1.0 - self.beta2}
        args |= {"eps": self.eps, "wd": self.weight_decay, "decoupled": self.decoupled}
        return Call("adam", args)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay."""

    name: ClassVar[str] = "adamw"
    decoupled: ClassVar[int] = 1

    weight_decay: float = 0.01
