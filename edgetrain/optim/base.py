"""What an optimizer is: named state for each parameter, and one kernel call that updates it."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from ..ir import Call, Value
from ..units import finite_number
from ..units.options import check_options


@dataclass(frozen=True)
class Optimizer:
    """Base; a subclass is a frozen dataclass of its hyperparameters.

    Attributes:
      lr: learning rate that a schedule scales.
      weight_decay: L2 coefficient (Adam, SGD) or decoupled decay (AdamW).
    """

    name: ClassVar[str] = ""

    lr: float = 0.1
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_options(self, f"optimizer {self.name}")
        self._within("lr", least=0)
        self._within("weight_decay", least=0)

    def _within(self, field: str, **bounds: Any) -> None:
        """Refuse a hyperparameter that is not a finite number within bounds."""
        value = finite_number(f"optimizer {self.name}: {field}", getattr(self, field), **bounds)
        object.__setattr__(self, field, value)

    @property
    def betas(self) -> tuple[float, float]:
        """Decay rates whose bias corrections the control block carries."""
        return 0.0, 0.0

    def init(self, parameter: Value) -> list[Value]:
        """State values of a parameter, in its shape; all start at zero."""
        raise NotImplementedError

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> Call:
        """The kernel call that moves `parameter` by `grad` and zeroes `grad`."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """`{"name": .., hyperparameters}`, the inverse of `make_optimizer(**)`."""
        return {"name": self.name, **dataclasses.asdict(self)}

    def _state(self, parameter: Value, tag: str) -> Value:
        return Value(f"{parameter.name}.{tag}", parameter.shape, parameter.dtype, "state")
