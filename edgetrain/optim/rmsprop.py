"""RMSprop, as torch.optim.RMSprop. Source: Tieleman and Hinton 2012; Graves 2013 (centered)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from ..formats import BLOCKED
from ..ir import Call, Value
from ..units import SMALLEST
from ..units.plugin import option
from .base import Optimizer


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """v = alpha * v + (1 - alpha) * g^2; w -= lr * g / (sqrt(v) + eps), with momentum if asked.

    In fp16 v is kept as its square root. The deviation is a difference of `square` and `mean`, for
    which blocks of 8 bits are too coarse: where they are asked for, the centered form has both in
    fp32.
    """

    name: ClassVar[str] = "rmsprop"
    roots: ClassVar[tuple[str, ...]] = ("square",)

    lr: float = option(0.01, "learning rate", "R", least=0)
    alpha: float = option(0.99, "decay of the mean of squares", "A", least=0, below=1)
    eps: float = option(1e-8, "added to the divisor", "E", least=SMALLEST)
    momentum: float = option(0.0, "share of the last step that is kept", "M", least=0, below=1)
    centered: bool = option(False, "divide by the deviation instead of the mean of squares")

    @property
    def adaptive(self) -> bool:
        return True

    def init(self, parameter: Value) -> list[Value]:
        tags = {"square": True, "momentum": self.momentum, "mean": self.centered}
        states = [self._state(parameter, tag) for tag, wanted in tags.items() if wanted]
        if not self.centered or parameter.dtype not in BLOCKED:
            return states
        momentum = f"{parameter.name}.momentum"
        return [s if s.name == momentum else replace(s, dtype="f32") for s in states]

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> list[Call]:
        names = {value.name.rpartition(".")[2]: value.name for value in state}
        args = self._operands(parameter, grad, key)
        args |= {"v": names["square"], "m": names.get("momentum"), "v_mean": names.get("mean")}
        args |= {"alpha": self.alpha, "c": 1.0 - self.alpha, "eps": self.eps, "mu": self.momentum}
        return [Call("rmsprop", args)]
