"""The base class of optimizers: hyperparameters, state per weight, and arithmetic."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import UsageError
from ..formats import FORMATS
from ..ir import Call, Value
from ..kernels.optimizers.states import CHUNKS, SQUARE, State
from ..units.plugin import Plugin, about, option

__all__ = ["CHUNKS", "PARTIALS", "Optimizer"]

# Float64 sums over a parameter in fixed chunks, shared by the instructions of an update.
PARTIALS = "update.partials"


@dataclass(frozen=True)
class Optimizer(Plugin):
    """Base class of optimizers; a subclass is a frozen dataclass of its hyperparameters. Kernels
    are made from its `arithmetic` (kernels/optimizers/rule.py).

    Attributes:
      lr: learning rate, which a schedule scales.
      weight_decay: L2 coefficient, or decoupled decay for some optimizers.
      states: the state kept for each weight.
      numbers: kernel operands computed by `rates`, as in a kernel declaration; `wd:f` if it has
        weight decay. An integer operand that is an option has the option's `least` and `most`.
      decays: whether it supports weight decay; otherwise only 0 is accepted.
      sums: number of float64 sums over the whole weight that a step needs first.
      wide: whether there is also a vectorized kernel.
      kernel: name of the compiled kernel.
      usual_lr: usual rate for transformers, which need a lower one; used for advice.
    """

    family: ClassVar[str] = "optimizer"
    choice: ClassVar[str] = "optimizer"
    default: ClassVar[str] = "sgd"
    states: ClassVar[tuple[State, ...]] = ()
    numbers: ClassVar[str] = ""
    sums: ClassVar[int] = 0
    wide: ClassVar[bool] = False
    usual_lr: ClassVar[str] = "3e-4"
    kernel: ClassVar[str] = ""
    decays: ClassVar[bool] = True
    arithmetic: ClassVar[Any]  # () -> Arithmetic

    lr: float = option(0.1, "learning rate", "R", least=0)
    weight_decay: float = option(0.0, "L2", "W", least=0)

    @property
    def betas(self) -> tuple[float, float]:
        """Decay rates with bias corrections in the control block."""
        return 0.0, 0.0

    @property
    def adaptive(self) -> bool:
        """Whether steps are divided by second moments, so resetting them makes steps too large."""
        return any(state.kind == SQUARE for state in self.states)

    def __init_subclass__(cls) -> None:
        for fact in ("tag", "operand", "stream"):
            facts = [getattr(state, fact) for state in cls.states]
            if len({*facts}) < len(facts):
                raise ValueError(
                    f"optimizer {cls.name}: two states have the same {fact}; expected different "
                    f"ones, found {', '.join(map(str, facts))}."
                )
        super().__init_subclass__()
        if "arithmetic" in vars(cls):
            cls.kernel = cls.name
            cls.decays = "wd" in cls._declared()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_decay and not self.decays:
            raise UsageError(
                f"optimizer {self.name}: weight_decay {self.weight_decay:g}: it has no weight "
                "decay. Leave it out."
            )

    @classmethod
    def ranged(cls) -> str:
        """`numbers` with the ranges of integer options."""
        out, bounds = [], {field.name: about(field).bounds for field in dataclasses.fields(cls)}
        for text in cls.numbers.split():
            given = bounds.get(text, {})
            both = given.keys() >= {"least", "most"}
            out.append(f"{text}={given['least']}..{given['most']}" if both else text)
        return " ".join(out)

    @classmethod
    def _declared(cls) -> set[str]:
        return {re.split("[:=]", text)[0] for text in cls.numbers.split()}

    @property
    def fusable(self) -> bool:
        """Whether a weight can be updated as soon as its own gradient is ready (`fused_update`).

        If a step first needs sums over the whole weight, it can't.
        """
        return not self.sums

    def is_root(self, state: Value) -> bool:
        """Whether steps are divided by the root of this state, which therefore must not become 0.

        Args:
          state: one of the values that `init` returned.
        """
        tag = state.name.rpartition(".")[2]
        return any(known.tag == tag and known.kind == SQUARE for known in self.states)

    def is_scaled(self, state: Value) -> bool:
        """Whether a state is stored times a power of two (kernels/optimizers/state.py).

        States are as small as gradients. A format with a short range, such as fp16, would round
        most of them to 0.
        """
        return FORMATS[state.dtype].short_range

    def keeps(self, state: State) -> bool:
        """Whether this optional state is needed with these hyperparameters."""
        return True

    @property
    def rates(self) -> Mapping[str, float]:
        """The values of `numbers`, without weight decay."""
        return {}

    def init(self, parameter: Value) -> list[Value]:
        """Make the optimizer state of a parameter, all zeros."""
        return [
            Value(f"{parameter.name}.{state.tag}", parameter.shape, parameter.dtype, "state")
            for state in self.states
            if not state.optional or self.keeps(state)
        ]

    def update(self, parameter: Value, grad: Value, state: list[Value], key: int) -> list[Call]:
        """Kernel calls that update `parameter` with `grad` and set `grad` to zero.

        Args:
          state: from `init`.
          key: key of the random numbers for this parameter's update.
        """
        kept = {value.name.rpartition(".")[2]: value.name for value in state}
        operands = {"w": parameter.name, "g": grad.name, "ctl": "ctl", "n": parameter.size}
        operands |= {state.operand: kept.get(state.tag) for state in self.states}
        rates = {**self.rates, **({"wd": self.weight_decay} if self.decays else {})}
        declared = self._declared()
        assert rates.keys() == declared, (
            f"optimizer {self.name}: rates {sorted(rates)}; numbers declare {sorted(declared)}"
        )
        operands |= rates
        if not self.sums:
            return [Call(self.kernel, operands | {"key": key})]
        operands["sums"] = PARTIALS
        return [Call(f"{self.kernel}_sums", operands), Call(self.kernel, operands | {"key": key})]
