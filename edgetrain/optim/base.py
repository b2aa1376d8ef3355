"""What an optimizer is: named state for each parameter, and the kernel calls that update it."""

from dataclasses import dataclass
from typing import ClassVar

from ..formats import BLOCKED, FORMATS
from ..ir import Call, Value
from ..units.plugin import Plugin, option

# Float64 sums over a parameter in fixed chunks, shared by the instructions of an update.
PARTIALS, CHUNKS = "update.partials", 64


@dataclass(frozen=True)
class Optimizer(Plugin):
    """Base; a subclass is a frozen dataclass of its hyperparameters.

    Attributes:
      lr: learning rate that a schedule scales.
      weight_decay: L2 coefficient, or decoupled decay where the optimizer says so.
      sums: arrays of CHUNKS sums at PARTIALS that the kernels work with.
      roots: tags of states that are second moments, of which short formats keep the roots.
    """

    family: ClassVar[str] = "optimizer"
    choice: ClassVar[str] = "optimizer"
    default: ClassVar[str] = "sgd"
    sums: ClassVar[int] = 1
    roots: ClassVar[tuple[str, ...]] = ()

    lr: float = option(0.1, "learning rate", "R", least=0)
    weight_decay: float = option(
        0.0, "L2, or decoupled where the optimizer has it so", "W", least=0
    )

    @property
    def betas(self) -> tuple[float, float]:
        """Decay rates whose bias corrections the control block carries."""
        return 0.0, 0.0

    @property
    def adaptive(self) -> bool:
        """Whether steps are divided by second moments, so that a reset makes them too large."""
        return False

    def is_root(self, state: Value) -> bool:
        """Whether a state that `init` gave is divided by: where it is not zero it stays so."""
        return state.name.rpartition(".")[2] in self.roots

    def is_scaled(self, state: Value) -> bool:
        """Whether a state is as small as gradients, and stored in a format that loses such numbers:
        it is held times a power of two (kernels/optimizers/state.py)."""
        return FORMATS[state.dtype].loss_scale != 1 and state.dtype not in BLOCKED

    def init(self, parameter: Value) -> list[Value]:
        """State values of a parameter; all start at zero."""
        raise NotImplementedError

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> list[Call]:
        """The kernel calls that move `parameter` by `grad` and zero `grad`.

        Args:
          state: what `init` gave.
          key: of the random numbers of this parameter's update.
        """
        raise NotImplementedError

    def _state(self, parameter: Value, tag: str) -> Value:
        return Value(f"{parameter.name}.{tag}", parameter.shape, parameter.dtype, "state")

    def _operands(self, parameter: Value, grad: Value, key: int) -> dict:
        """What every update takes."""
        operands = {"w": parameter.name, "g": grad.name, "ctl": "ctl", "key": key}
        return operands | {"n": parameter.size, "wd": self.weight_decay}
