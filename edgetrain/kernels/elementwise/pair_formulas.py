"""Functions of two numbers, one table row each; op, kernels, gradients and parity use it.

Formulas are written with the intrinsics of formulas.py, on a and b; a vjp takes the operands that
it reads, in this order, then the gradient dy of the result. Operands broadcast, and their gradients
are summed over what was broadcast.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .formulas import ZERO
from .rows import table

if TYPE_CHECKING:
    from ..language.number import where


def prelu(a, b):
    return where(a > ZERO, a, a * b)


def prelu_vjp_a(a, b, dy):
    return where(a > ZERO, dy, dy * b)


def prelu_vjp_b(a, dy):
    return where(a > ZERO, ZERO, dy * a)


@dataclass(frozen=True, slots=True)
class Pair:
    """A function of two numbers.

    Attributes:
      name: of the op; its kernels are bin_NAME, bgrad_NAME_a and bgrad_NAME_b.
      value, vjp_a, vjp_b: see the module docstring.
      onnx: the ONNX op type of this function, with two or more operands.
      revision: of its kernels; raised if their bits change.
    """

    name: str
    value: Callable
    vjp_a: Callable
    vjp_b: Callable
    onnx: str = ""
    revision: int = 1

    @property
    def rules(self) -> tuple[str, str]:
        """Names of the gradients of a and b."""
        return f"{self.name}_a", f"{self.name}_b"

    @property
    def vjps(self) -> dict[str, Callable]:
        """Gradients by the names of their rules."""
        return dict(zip(self.rules, (self.vjp_a, self.vjp_b), strict=True))


PAIRS: dict[str, Pair] = table("name", (Pair("prelu", prelu, prelu_vjp_a, prelu_vjp_b, "PRelu"),))


def reads_of(vjp: Callable) -> str:
    """The operands that a vjp reads: "", "a", "b" or "ab"."""
    code = vjp.__code__
    return "".join(name for name in code.co_varnames[: code.co_argcount] if name in ("a", "b"))
