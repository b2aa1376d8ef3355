"""What is true of ONNX ops: a rule that rewrites a node into ir nodes, and facts about operands.

A rule works through an `ImportContext`. The facts say how files use an op: the importer decides by
them which constants are weights. The family files fill the table.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import numpy as np

from ..errors import ModelError
from ..ir import Node, Value
from ..units.wording import counted

_SHOWN = 300  # most characters of a part of a message


def _short(text: str) -> str:
    """One line of at most _SHOWN characters."""
    line = " ".join(text.split()) if "\n" in text else text
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 20]} ... {line[-15:]}"


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node of an ONNX file as plain Python: attributes are ints, floats, strs, lists, arrays.

    `function` is the torch operator that it was exported from, "" if the file does not say.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    function: str = ""

    def fail(self, found: str, expected: str) -> ModelError:
        """Make a ModelError that names this node."""
        label = f"node {_short(self.name)!r} ({_short(self.op_type)})"
        return ModelError(f"{label}: {_short(found)}; expected {_short(expected)}.")

    def check_form(self, count: int, numbers: Collection[str] = ()) -> None:
        """Check a node of another domain: ONNX's checker knows only those of its own.

        Args:
          count: of its inputs.
          numbers: its attributes.
        Raises:
          ModelError: it has other attributes or another number of inputs.
        """
        if not self.domain:
            return
        if len(self.inputs) != count:
            raise self.fail(counted(len(self.inputs), "input"), f"{count}")
        for name, value in self.attrs.items():
            if name not in numbers:
                raise self.fail(f"attribute {name!r}", " or ".join(numbers) or "no attribute")
            if not isinstance(value, int | float):
                raise self.fail(f"{name} {value!r}", "a number")

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
    """A branch of an If: its nodes may use all names of the outer graph."""

    nodes: tuple[OnnxNode, ...]
    arrays: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]


class ImportContext(Protocol):
    """What ONNX rules can use; implemented by compiler/bind."""

    opset: int
    batch: int

    def value(self, node: OnnxNode, index: int) -> Value: ...
    def has(self, node: OnnxNode, index: int) -> bool: ...
    def reads(self, node: OnnxNode, index: int) -> bool: ...
    def const(self, node: OnnxNode, index: int) -> np.ndarray | None: ...
    def ints(self, node: OnnxNode, index: int, attr: str = "") -> list[int] | None: ...
    def emit(
        self,
        node: OnnxNode,
        op: str,
        inputs: Sequence[str],
        shapes,
        attrs=None,
        *,
        outputs=None,
        dtype="f32",
        role=None,
    ) -> list[str]: ...
    def bind(self, node: OnnxNode, index: int, name: str) -> None: ...
    def view(self, node: OnnxNode, name: str, shape: Sequence[int]) -> str: ...
    def room(self, node: OnnxNode, elements: int, itemsize: int = 4, weight: int = 1) -> None: ...
    def constant(self, node: OnnxNode, tag: str, array: np.ndarray) -> str: ...
    def reshaped(self, node: OnnxNode, source: Value, shape: Sequence[int]) -> str: ...
    def named(self, name: str) -> Value: ...
    def maker(self, name: str) -> Node | None: ...
    def array(self, name: str) -> np.ndarray | None: ...
    def fold(self, node: OnnxNode, index: int, array: np.ndarray) -> None: ...
    def inline(self, part: Subgraph) -> None: ...
    def in_float32(self) -> AbstractContextManager[None]: ...
    def run(self, node: OnnxNode) -> None: ...
    def temporary(self, node: OnnxNode, tag: str, shape, dtype="f32", role=None) -> str: ...
    def label(self, node: OnnxNode, tag: str) -> str: ...


# (context, node, rank of its first input) -> axes along which elements are combined, which
# therefore can't be the sample axis, and their name in messages.
Joined = Callable[[ImportContext, OnnxNode, int], tuple[Collection[int], str]]


def no_axes(context: ImportContext, node: OnnxNode, rank: int) -> tuple[Collection[int], str]:
    """For ops whose axes don't restrict samples."""
    return (), ""


def axis_of(usual: int, what: str) -> Joined:
    """For ops that combine elements along the axis in an attribute."""

    def rule(context: ImportContext, node: OnnxNode, rank: int) -> tuple[Collection[int], str]:
        return (node.axis(node.attrs.get("axis", usual), rank),), what

    return rule


def axes_from(what: str) -> Joined:
    """For ops that combine elements along an axis, before opset 13 along all from it on."""

    def rule(context: ImportContext, node: OnnxNode, rank: int) -> tuple[Collection[int], str]:
        if context.opset < 13:
            return range(node.axis(node.attrs.get("axis", 1), rank), rank), what
        return (node.axis(node.attrs.get("axis", -1), rank),), what

    return rule


def images(context: ImportContext, node: OnnxNode, rank: int) -> tuple[Collection[int], str]:
    """For ops on [samples, channels, ...]."""
    return range(1, rank), "an axis of channels or of the image"


Arrays = list[Any]  # constant inputs of a node; None for an input that is left out


def _widest(node: OnnxNode, inputs: Arrays) -> int:
    return max(x.itemsize for x in inputs if x is not None)


@dataclass(frozen=True, slots=True)
class Fold:
    """How numpy computes a node whose inputs are constants.

    Attributes:
      run: function (node, inputs) -> the output, or a list of outputs.
      elements: function (node, inputs) -> number of elements of the outputs, known before they are
        computed; None: as many as the largest input has.
      work: cost of an element.
      lists: index from which inputs are lists of sizes, axes or positions; None: no input is.
      itemsize: function (node, inputs) -> upper bound of the bytes of an element of the outputs.
      view: whether the outputs share the memory of an input.
    """

    run: Callable[[OnnxNode, Arrays], Any]
    elements: Callable[[OnnxNode, Arrays], int] | None = None
    work: int = 1
    lists: int | None = None
    itemsize: Callable[[OnnxNode, Arrays], int] = _widest
    view: bool = False


class Use(Enum):
    """What constants among an op's `weights` are in a file that does not name its parameters."""

    WEIGHTS = "weights"  # trained
    TERMS = "terms"  # biases, scales, masks or tables: trained if their names and values say so
    FORMULA = "formula"  # numbers of a formula: trained only on request
    TABLE = "table"  # rows that are looked up: trained if their names and values say so


# (node, shape of its constant operand) -> number of outputs per sample; 0 if unknown.
Width = Callable[[OnnxNode, Sequence[int]], int]


def unknown_width(node: OnnxNode, shape: Sequence[int]) -> int:
    """For products with any number of outputs."""
    return 0


@dataclass(frozen=True, slots=True)
class OnnxOp:
    """What is true of one ONNX op type.

    Attributes:
      rule: rewrites a node into ir nodes; None if only constants may reach it.
      measure: what it says about a shape, for ops that read nothing else of their input.
      fold: how it is computed once if its inputs are constants; None: by its rule, at every step.
      weights: inputs whose initializers are parameters if there is no metadata.
      use: what constants at these inputs are.
      buffers: inputs whose initializers are running statistics.
      states: inputs that are initial states of a recurrence.
      settings: inputs that gradients don't reach, or that are chosen: bounds, thresholds, ..
      sizes: inputs that say how large the output is.
      vectors: those of `weights` that are vectors, although they have more axes, such as one of
        directions.
      neutral: input -> its value in a node without parameters, such as a scale of ones.
      names: input -> last part of a torch parameter's name.
      variadic: whether it takes any number of inputs, all of them like the first.
      moves: whether its output has the numbers of its first input (of all, if variadic), at places
        that don't depend on them.
      reshapes: whether its output has all numbers of its first input in their order.
      picks: whether its output has numbers of its first input, chosen by their size.
      converts: whether its output stands for the same numbers in another type.
      adds: whether it adds its inputs.
      scales: whether it multiplies its inputs by elements.
      periodic: whether it is a wave, of which inputs are angles.
      training_only: whether it only passes its first input on unless it is trained.
      width: for products with weights, how many outputs they have.
      joined: function that returns axes over which elements are combined.
      integers: inputs that may be integers in ONNX but not in the rule; if they are, the rule is
        applied to float32 copies and its first output is converted back.
      ordered: whether its result depends on the order of integers only, so that a constant beyond
        32 bits is like the closest one of 32 bits.
    """

    rule: Callable[[ImportContext, OnnxNode], None] | None = None
    measure: Callable[[OnnxNode, Sequence[int]], Any] | None = None
    fold: Fold | None = None
    weights: tuple[int, ...] = ()
    use: Use = Use.WEIGHTS
    buffers: tuple[int, ...] = ()
    states: tuple[int, ...] = ()
    settings: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    vectors: tuple[int, ...] = ()
    neutral: Mapping[int, float] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    variadic: bool = False
    moves: bool = False
    reshapes: bool = False
    picks: bool = False
    converts: bool = False
    adds: bool = False
    scales: bool = False
    periodic: bool = False
    training_only: bool = False
    width: Width | None = None
    joined: Joined = no_axes
    integers: tuple[int, ...] = ()
    ordered: bool = False

    @property
    def known(self) -> bool:
        """Whether nodes of this type can be imported, some only if their inputs are constants."""
        return any((self.rule, self.measure, self.fold))

    @property
    def passes(self) -> bool:
        """Whether a weight behind it is still that weight, in another shape or type."""
        return self.moves or self.converts

    def weighted(self, count: int) -> range | tuple[int, ...]:
        """Those of a node's `count` inputs whose initializers are parameters."""
        return range(count) if self.variadic and self.weights else self.weights


# Facts of norms with scale and shift, and names of the parameters of most layers.
AFFINE: dict[str, Any] = {"weights": (1, 2), "neutral": {1: 1.0, 2: 0.0}}
WEIGHT_AND_BIAS = {1: "weight", 2: "bias"}

_ONNX: dict[str, OnnxOp] = {}
_UNKNOWN = OnnxOp()


def declare(*op_types: str, **facts: Any) -> None:
    """Add ONNX op types with these attributes of OnnxOp.

    Raises:
      ValueError: a type is in the table already.
    """
    for op_type in op_types:
        if op_type in _ONNX:
            raise ValueError(f"ONNX op {op_type} has two rules; expected one.")
        _ONNX[op_type] = OnnxOp(**facts)


def onnx_rule(*op_types: str, **facts: Any):
    """Register a rule for ONNX op types, with attributes of OnnxOp.

    Raises:
      ValueError: see `declare`.
    """

    def add(rule: Callable[[ImportContext, OnnxNode], None]):
        declare(*op_types, rule=rule, **facts)
        return rule

    return add


def onnx_op(op_type: str) -> OnnxOp:
    """What is true of this ONNX op type; nothing if it is not in the table."""
    return _ONNX.get(op_type, _UNKNOWN)


def onnx_names() -> list[str]:
    """ONNX op types that have a rule."""
    return sorted(name for name, op in _ONNX.items() if op.rule)


def fold_names() -> list[str]:
    """ONNX op types that are folded if their inputs are constants."""
    return sorted(name for name, op in _ONNX.items() if op.fold)


def joined(context: ImportContext, node: OnnxNode, rank: int) -> tuple[Collection[int], str]:
    """Axes of a node's first input (of `rank` dimensions) that can't be samples, and why."""
    return onnx_op(node.op_type).joined(context, node, rank)
