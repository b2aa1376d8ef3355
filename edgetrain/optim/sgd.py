"""Stochastic gradient descent, as torch.optim.SGD. Source: Sutskever 2013 (Nesterov)."""

from dataclasses import dataclass
from typing import ClassVar

from ..errors import UsageError
from ..ir import Call, Value
from .base import Optimizer


@dataclass(frozen=True)
class SGD(Optimizer):
    """v = momentum * v + (1 - dampening) * g; w -= lr * v; Nesterov: lr * (g + momentum * v)."""

    name: ClassVar[str] = "sgd"

    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._within("momentum", least=0, below=1)
        self._within("dampening", least=0, most=1)
        if self.nesterov and self.dampening != 0:
            raise UsageError(
                f"optimizer sgd: dampening {self.dampening}: nesterov takes none. Leave one out."
            )

    def init(self, parameter: Value) -> list[Value]:
        return [self._state(parameter, "momentum")] if self.momentum else []

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> Call:
        args: dict = {"w": parameter.name, "g": grad.name, "ctl": "ctl", "key": key}
        args |= {"v": state[0].name if state else None, "n": parameter.size}
        args |= {"mu": self.momentum, "wd": self.weight_decay, "dampening": self.dampening}
        return Call("sgd", args | {"nesterov": int(self.nesterov)})
