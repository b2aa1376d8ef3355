"""Stochastic gradient descent, as torch.optim.SGD. Source: Sutskever 2013 (Nesterov)."""

from dataclasses import dataclass
from typing import ClassVar

from ..errors import UsageError
from ..ir import Call, Value
from ..units.plugin import option
from .base import Optimizer


@dataclass(frozen=True)
class SGD(Optimizer):
    """v = momentum * v + (1 - dampening) * g; w -= lr * v; Nesterov: lr * (g + momentum * v)."""

    name: ClassVar[str] = "sgd"

    momentum: float = option(0.0, "share of the last step that is kept", "M", least=0, below=1)
    nesterov: bool = option(False, "Nesterov's form of the momentum")
    dampening: float = option(0.0, "of the momentum", "D", least=0, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.dampening != 0:
            raise UsageError(
                f"optimizer sgd: dampening {self.dampening}: nesterov takes none. Leave one out."
            )

    def init(self, parameter: Value) -> list[Value]:
        return [self._state(parameter, "momentum")] if self.momentum else []

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> list[Call]:
        args = self._operands(parameter, grad, key)
        args |= {"v": state[0].name if state else None, "mu": self.momentum}
        args |= {"dampening": self.dampening, "nesterov": int(self.nesterov)}
        return [Call("sgd", args)]
