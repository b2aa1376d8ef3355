"""Numbers and vectors of interpreted kernels, whose lanes may be undefined.

Kernels load whole vectors and rows and use a part of them, so bytes that were never written may be
read, moved and computed with. But nothing may depend on them: no branch, no address, and no final
content of an operand.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .faults import Fault


@dataclass(frozen=True, eq=False)
class Partly:
    """A number or lanes, some of which depend on bytes that were never written.

    Attributes:
      values: a numpy number or array, with arbitrary values where undefined.
      undefined: a boolean for each lane.
      origin: what was read, and at which line, for messages.
    """

    values: Any
    undefined: Any
    origin: str
    __array_ufunc__ = None  # numpy's numbers leave operators to this class

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def __getitem__(self, lanes: Any) -> Any:
        return made(self.values[lanes], self.undefined[lanes], self.origin)

    def _decides(self) -> Any:
        raise Fault(f"a branch depends on bytes that were never written: {self.origin}")

    __bool__ = __int__ = __index__ = __float__ = _decides


Lanes = Any  # a numpy number, an array, or either as Partly


def made(values: Any, undefined: Any, origin: str) -> Lanes:
    """A number or lanes, as a plain numpy value if all are defined."""
    return Partly(values, undefined, origin) if undefined.any() else values


def parts(value: Lanes) -> tuple[Any, Any, str]:
    """Values, undefined lanes, and their origin."""
    if type(value) is Partly:
        return value.values, value.undefined, value.origin
    return value, np.False_, ""


def lanewise(operation: Callable) -> Callable:
    """An operation lane by lane: a lane is undefined if it is undefined in any operand."""

    def lifted(*values):
        for value in values:
            if type(value) is Partly:
                break
        else:
            return operation(*values)
        numbers, undefined, origins = zip(*map(parts, values), strict=True)
        everywhere = np.logical_or.reduce(np.broadcast_arrays(*undefined))
        return made(operation(*numbers), everywhere, next(filter(None, origins)))

    return lifted


def _give_operators() -> None:
    """Give Partly the operators of numbers."""
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift",
                 "rshift"):  # fmt: skip
        apply = lanewise(getattr(operator, f"__{name}__"))
        setattr(Partly, f"__{name}__", lambda self, other, apply=apply: apply(self, other))
        setattr(Partly, f"__r{name}__", lambda self, other, apply=apply: apply(other, self))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "invert", "abs"):
        apply = lanewise(getattr(operator, f"__{name}__"))
        setattr(Partly, f"__{name}__", lambda *values, apply=apply: apply(*values))


_give_operators()


def select(condition: Lanes, yes: Lanes, no: Lanes) -> Lanes:
    """`yes` in lanes where the mask holds, else `no`; values not selected may be undefined."""
    chosen, unsure, where = parts(condition)
    (a, a_undefined, a_from), (b, b_undefined, b_from) = parts(yes), parts(no)
    values = np.where(chosen, a, b)[()]
    undefined = np.where(chosen, a_undefined, b_undefined) | unsure
    if not undefined.any():
        return values
    return Partly(values, np.broadcast_to(undefined, values.shape), where or a_from or b_from)


def choose(condition: Lanes, yes: Any, no: Any) -> Any:
    """Like `select`, but with one condition for all lanes, and for any kind of value. The other
    value may be undefined."""
    if type(condition) is Partly:
        return select(condition, yes, no)
    return yes if condition else no


def shuffle(a: Lanes, b: Lanes, lanes: np.ndarray) -> Lanes:
    """These lanes of a and b; b's lanes are numbered after a's."""
    (one, one_undefined, one_from), (two, two_undefined, two_from) = parts(a), parts(b)
    values = np.concatenate((one, two))[lanes]
    if not (one_from or two_from):
        return values
    masks = [np.broadcast_to(m, one.shape) for m in (one_undefined, two_undefined)]
    return made(values, np.concatenate(masks)[lanes], one_from or two_from)


def insert(vector: Lanes, number: Lanes, lane: int) -> Lanes:
    """The vector with one lane set."""
    (values, undefined, origin), (new, unsure, new_from) = parts(vector), parts(number)
    values = np.array(values)
    values[lane] = new
    if not (origin or new_from):
        return values
    mask = np.array(np.broadcast_to(undefined, values.shape))
    mask[lane] = unsure
    return made(values, mask, origin or new_from)
