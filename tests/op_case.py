"""The parts of a row in the table of op cases."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BATCH = 2


@dataclass(frozen=True)
class X:
    """An activation with the batch first: a model input plus a parameter of the same shape.

    Attributes:
      positive: values are above 0, or the range of the values.
    """

    shape: tuple[int, ...]
    positive: bool | tuple[float, float] = False


@dataclass(frozen=True)
class A:
    """An activation of any shape: a negated parameter."""

    shape: tuple[int, ...]
    positive: bool = False


@dataclass(frozen=True)
class P:
    """A parameter; `buffer` for running statistics, which have no gradient."""

    shape: tuple[int, ...]
    positive: bool = False
    buffer: bool = False


@dataclass(frozen=True)
class C:
    """A constant of the graph."""

    value: Any
    dtype: Any = np.int64

    @property
    def array(self) -> np.ndarray:
        return np.array(self.value, self.dtype)


@dataclass(frozen=True)
class Ids:
    """An integer model input below `high`."""

    shape: tuple[int, ...]
    high: int


@dataclass(frozen=True, eq=False)
class Case:
    """One node; `meaning` takes a float64 tensor (or array, or None) per argument."""

    op: str
    name: str
    args: Sequence[Any]
    meaning: Callable
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 17
    outputs: int = 1
    predicts: bool = True  # training and evaluation have the same meaning
    reference: bool = True  # onnx.reference agrees with the standard here
    mask: bool = False  # the output is boolean: it is cast and scaled by a parameter
    truth: bool = False  # activations are first compared with zero
    pair: bool = False  # of a QuantizeLinear and a DequantizeLinear with the same operands
    captured: int = 0  # the last arguments, this many, are read by subgraphs, not by the node

    @property
    def id(self) -> str:
        return f"{self.op}-{self.name}"


def ints(*values: int) -> C:
    """An int64 vector."""
    return C(list(values))


def floats(value) -> C:
    """A float32 array."""
    return C(value, np.float32)
