"""Adafactor, like torch.optim.Adafactor. Source: Shazeer and Stern 2018, algorithms 4 and 5."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ..formats.csr import POOL
from ..ir import Call, Value
from ..kernels.optimizers.states import SECOND, SQUARE, State
from ..units import SMALLEST
from ..units.plugin import option
from .base import PARTIALS, Optimizer

EPS = 2.0**-23  # of float32, as in torch


@dataclass(frozen=True)
class Adafactor(Optimizer):
    """Keeps second moments of a matrix [rows, cols] as row and column means: rows + cols numbers.

    A tensor is treated as matrices over its last two axes. Vectors and nonzeros of sparse weights
    have one moment per element (in fp16 its square root); all sparse layers together count as one
    weight.
    """

    name: ClassVar[str] = "adafactor"
    sums: ClassVar[int] = 2
    states: ClassVar = (State("square", "v", SQUARE, SECOND),)

    lr: float = option(0.01, "learning rate", "R", least=0)
    beta2_decay: float = option(
        -0.8, "exponent P: update t has weight t^P in the second moment", "P", least=-10, most=0
    )
    eps1: float = option(EPS, "floor of sqrt(second moment)", "E", least=SMALLEST)
    eps2: float = option(1e-3, "floor of the weight RMS that scales steps", "E", least=0)
    clip: float = option(1.0, "clip a step to this root mean square", "D", least=1)
    weight_decay: float = option(0.0, "decoupled", "W", least=0)

    @property
    def fusable(self) -> bool:
        return True  # its sums are computed by instructions within a weight's update

    def init(self, parameter: Value) -> list[Value]:
        if len(parameter.shape) < 2 or parameter.name == POOL:
            return super().init(parameter)
        *others, rows, cols = parameter.shape
        name = parameter.name
        return [
            Value(f"{name}.rows", (*others, rows, 1), "f32", "state"),
            Value(f"{name}.columns", (*others, 1, cols), "f32", "state"),
        ]

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> list[Call]:
        sums = {"sums": PARTIALS, "ctl": "ctl"}
        read = {"w": parameter.name, "g": grad.name}
        last = {"key": key, "eps": self.eps1, "least": self.eps2, "most": self.clip}
        last |= {"wd": self.weight_decay}
        if len(state) == 1:
            own = {"v": state[0].name, "n": parameter.size} | sums
            power = {"key": key, "power": self.beta2_decay, "eps": self.eps1}
            return [
                Call("adafactor_vector_moments", read | own | power),
                Call("adafactor_vector", read | own | last),
            ]
        *others, rows, cols = parameter.shape
        own = {"v_rows": state[0].name, "v_cols": state[1].name, **sums}
        own |= {"count": math.prod(others), "rows": rows, "cols": cols}
        return [
            Call("adafactor_moments", read | own | {"power": self.beta2_decay}),
            Call("adafactor_steps", {"g": grad.name, "eps": self.eps1} | own),
            Call("adafactor", read | own | last),
        ]
