"""What an op is, and the two tables: ir ops by name, ONNX op types by name.

An ir op knows its cost, gradient rule, in-place pairs and kernel calls. An ONNX rule rewrites one
ONNX node into ir nodes through an `ImportContext`. A family file fills both tables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..errors import ModelError
from ..ir import Call, Graph, Node, Value

_SHOWN = 300  # characters of a part of a message


def _short(text: str) -> str:
    """A line of at most _SHOWN characters; what a file holds may be long."""
    line = " ".join(text.split()) if "\n" in text else text
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 20]} ... {line[-15:]}"


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node of an ONNX file as plain Python: attributes are ints, floats, strs, lists, arrays."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""

    def fail(self, found: str, expected: str) -> ModelError:
        """A ModelError that names this node."""
        label = f"node {_short(self.name)!r} ({_short(self.op_type)})"
        return ModelError(f"{label}: {_short(found)}; expected {_short(expected)}.")

    def axis(self, axis: int, rank: int) -> int:
        """`axis` of a tensor of `rank` dimensions, counted from the front.

        Raises:
          ModelError: there is no such axis.
        """
        if not -rank <= axis < rank:
            raise self.fail(f"axis {axis} of {rank} dimensions", f"{-rank} to {rank - 1}")
        return int(axis) % rank


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A branch of an If: its nodes may use every name of the graph around it."""

    nodes: tuple[OnnxNode, ...]
    arrays: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]


class ImportContext(Protocol):
    """What an ONNX rule may ask for and do; implemented by compiler/bind."""

    opset: int
    batch: int

    def value(self, node: OnnxNode, index: int) -> Value: ...
    def has(self, node: OnnxNode, index: int) -> bool: ...
    def reads(self, node: OnnxNode, index: int) -> bool: ...
    def const(self, node: OnnxNode, index: int) -> np.ndarray | None: ...
    def ints(self, node: OnnxNode, index: int, attr: str = "") -> list[int] | None: ...
    def emit(
        self, node: OnnxNode, op: str, inputs: Sequence[str], shapes, attrs=None, *,
        outputs=None, dtype="f32", role=None,
    ) -> list[str]: ...  # fmt: skip
    def bind(self, node: OnnxNode, index: int, name: str) -> None: ...
    def view(self, node: OnnxNode, name: str, shape: Sequence[int]) -> str: ...
    def room(self, node: OnnxNode, elements: int, itemsize: int = 4, weight: int = 1) -> None: ...
    def constant(self, node: OnnxNode, tag: str, array: np.ndarray) -> str: ...
    def reshaped(self, node: OnnxNode, source: Value, shape: Sequence[int]) -> str: ...
    def named(self, name: str) -> Value: ...
    def fold(self, node: OnnxNode, index: int, array: np.ndarray) -> None: ...
    def inline(self, part: Subgraph) -> None: ...
    def run(self, node: OnnxNode) -> None: ...
    def temporary(self, node: OnnxNode, tag: str, shape, dtype="f32", role="activation") -> str: ...


class Op:
    """An ir op; a family subclasses it once and registers instances.

    Attributes:
      recompute: may run again in a microbatch (False: it moves state).
      rounds: what it adds to an accumulator is rounded stochastically (False: it goes through a
        value of its own).
      in_place: (output, input) index pairs that may share bytes when the input is not read again.
    """

    recompute = True
    rounds = False
    in_place: tuple[tuple[int, int], ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        """Kernel calls in order."""
        raise NotImplementedError(self.name)

    def vjp(self, grads: Any, node: Node) -> None:
        """Emit the gradients of the inputs through `grads` (compiler/autodiff.py)."""
        raise NotImplementedError(f"op {self.name} has no gradient rule")

    def inplace(self, node: Node) -> tuple[tuple[int, int], ...]:
        """`in_place` of a node."""
        return self.in_place

    def flops(self, node: Node, graph: Graph) -> int:
        """Floating point operations, a multiply-add counted as two."""
        return sum(graph.values[name].size for name in node.writes)


_OPS: dict[str, Op] = {}
_ONNX: dict[str, Callable[[ImportContext, OnnxNode], None]] = {}
_WEIGHT_SLOTS: dict[str, tuple[int, ...]] = {}
_BUFFER_SLOTS: dict[str, tuple[int, ...]] = {}


def register(op: Op) -> Op:
    """Add an ir op to the table."""
    if op.name in _OPS:
        raise ValueError(f"op {op.name} is registered twice")
    _OPS[op.name] = op
    return op


def onnx_rule(*op_types: str, weights: tuple[int, ...] = (), buffers: tuple[int, ...] = ()):
    """Register a rule for ONNX op types.

    Args:
      weights: input slots whose initializers are parameters where no metadata says so.
      buffers: input slots whose initializers are running statistics.
    """

    def add(rule: Callable[[ImportContext, OnnxNode], None]):
        for op_type in op_types:
            _ONNX[op_type] = rule
            _WEIGHT_SLOTS[op_type], _BUFFER_SLOTS[op_type] = weights, buffers
        return rule

    return add


def op(name: str) -> Op:
    """The ir op of this name."""
    return _OPS[name]


def op_names() -> list[str]:
    """Every ir op."""
    return sorted(_OPS)


def rule(op_type: str) -> Callable[[ImportContext, OnnxNode], None] | None:
    """The ONNX rule of this op type, None where there is none."""
    return _ONNX.get(op_type)


def onnx_names() -> list[str]:
    """ONNX op types that have a rule."""
    return sorted(_ONNX)


def slots(op_type: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(weight slots, buffer slots) of an ONNX op type."""
    return _WEIGHT_SLOTS.get(op_type, ()), _BUFFER_SLOTS.get(op_type, ())
