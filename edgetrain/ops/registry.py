"""The base class of ops, and two tables: ir ops by name, and rules by ONNX op type.

An ir op has a cost, gradient rule, in-place pairs and kernel calls. An ONNX rule rewrites an ONNX
node into ir nodes through an `ImportContext`. The family files fill both tables.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..errors import ModelError, UnsupportedOpError
from ..ir import Call, Graph, Node, Value
from ..ir.keys import key_of
from ..kernels.elementwise.formulas import FUSED
from ..kernels.registry import variants
from ..units.hints import did_you_mean
from ..units.wording import counted
from .samples import Rule
from .sides import Sides, sides_of
from .storing import store_as
from .structure import Structure

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


Values = Mapping[str, Value]
Attrs = Mapping[str, Any]
# Values of scalars for which a node has no attribute.
_USUAL = {"acc": 0, "act": 0, "lo": 0.0, "hi": 0.0, "ctl": "ctl"}


def _nothing(values: Values, attrs: Attrs) -> Mapping[str, Any]:
    return {}


class Op:
    """An ir op: a row with its kernel and cost, or a subclass.

    Attributes:
      kernel: name of the kernel; default: the op's name.
      inputs, outputs: the kernel's operands in order, as in "x w -> y"; "-" for inputs the kernel
        does not take. Inputs after the last name are not passed to the kernel.
      sizes: function (values by operand, attributes) -> integers that follow from shapes; dx also
        stands in for a missing x. Other scalars of the kernel are attributes of the same name.
      cost: floating-point operations per element of the first input, or in total as a function
        (values by operand, attributes); None: one per written element.
      gradient: operands that `<name>_bwd` reads for the gradient of the first input; dy is the
        gradient of the first output. "": no gradient; None: a subclass defines it, or there is
        none.
      in_place: (output, input) index pairs that may share memory if the input is not read again.
      rounds: whether it rounds stochastically when adding to an accumulator (False: through a
        separate value).
      recompute: whether it may run again in a microbatch (False: it changes state).
      samples: rule for keeping samples apart (ops/samples.py); None: it mixes samples.
      structure: how its operands relate to each other; None: in a way of its own.
      sparse: the op with a sparse weight ("" if none; compiler/model/sparsify.py); `weight`: the
        index of that input.
      layer: whether it is a layer with weights, and so may be a net's first or last layer.
      part: the op that computes a part of a larger value, for ops that number their elements.
      states: for a recurrence, the states it passes on, in `attrs['made']`.
      spreads: whether it repeats its input along axes such as the sample axis.
      chooses: whether its last input is indices along attrs['axis'] of the first.
      moves_only: whether its output has no numbers but those of its inputs, and perhaps a constant.
      logarithms: whether its output is logarithms of probabilities.
      capped: whether integers beyond those of `indices` act like the largest.
      reads_rounded: whether the values it reads in backward may be rounded to 8 bits (`--saved`).
    """

    in_place: tuple[tuple[int, int], ...] = ()
    rounds = False
    recompute = True
    samples: Rule | None = None
    reads_rounded = False
    structure: Structure | None = None
    sparse = ""
    weight = 1
    layer = False
    chooses = False
    capped = False
    logarithms = False
    moves_only = False
    spreads = False
    part = ""
    states: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        operands: str = "",
        sizes: Callable[[Values, Attrs], Mapping[str, Any]] = _nothing,
        *,
        kernel: str = "",
        cost: int | Callable[[Values, Attrs], int] | None = None,
        gradient: str | None = None,
        **flags: Any,
    ) -> None:
        self.name, self.kernel, self.sizes = name, kernel or name, sizes
        self.inputs, self.outputs = (part.split() for part in operands.partition("->")[::2])
        self.cost, self.gradient = cost, gradient
        for flag, value in flags.items():
            assert hasattr(Op, flag), f"op {name}: no attribute {flag!r}; Op lists them"
            setattr(self, flag, value)

    def chosen(self, node: Node, graph: Graph) -> Node:
        """The node with the algorithm chosen for its shapes, if there are several."""
        return node

    def shortcut(self, node: Node) -> bool:
        """Whether a node uses an algorithm other than the direct one."""
        return False

    def may_round(self, node: Node) -> bool:
        """Whether the values this node reads in backward may be rounded."""
        return self.reads_rounded

    def sides(self, node: Node) -> Sides | None:
        """Kinks of an activation that the node recomputes from its input; None: no kinks."""
        operands = self.named(node)
        x, stat = operands.get("x", ""), operands.get("stat", "")
        if not x or not stat:
            return None
        code, low, high = (node.attrs.get(name, 0) for name in ("act", "lo", "hi"))
        affine = (stat, operands.get("gamma", ""), operands.get("beta", ""))
        return sides_of(FUSED.get(code), low, high, x, affine)

    def indices(self, node: Node, graph: Graph) -> list[tuple[str, int]]:
        """(input, n) for each input whose integers must be in [0, n)."""
        if self.chooses:
            of = node.attrs.get("shape") or graph.values[node.inputs[0]].shape
            return [(node.inputs[-1], of[node.attrs.get("axis", 0)])]
        return [(node.inputs[0], node.attrs["below"])] if "below" in node.attrs else []

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        """Kernel calls in order."""
        return [self.call(node, graph)]

    def call(self, node: Node, graph: Graph, kernel: str = "") -> Call:
        """The call of its kernel, or of another one with the same operands."""
        kernel = kernel or self.kernel
        args: dict[str, Any] = {name: value or None for name, value in self.named(node).items()}
        args |= self.sizes(self._values(node, graph), node.attrs)
        scalars = _scalars(kernel)
        usual = {**_USUAL, "key": key_of(node.name)}
        if "sr" in scalars:
            usual |= store_as(node, graph, graph.values[node.outputs[0]])
        for name in scalars:
            if name not in args:
                args[name] = node.attrs[name] if name in node.attrs else usual[name]
        return Call(kernel, args)

    def vjp(self, grads: Any, node: Node) -> None:
        """Emit the gradients of the inputs through `grads` (compiler/passes/autodiff.py)."""
        if self.gradient is None:
            raise NotImplementedError(f"op {self.name} has no gradient rule")
        if self.gradient and (dy := grads.of(node.outputs[0])) and grads.needs(node.inputs[0]):
            names = {"dy": dy} | self.named(node)
            reads = [names[operand] for operand in self.gradient.split()]
            grads.contribute(node.inputs[0], f"{self.name}_bwd", reads, dict(node.attrs))

    def flops(self, node: Node, graph: Graph) -> int:
        """Floating-point operations; a multiply-add counts as two."""
        if self.cost is None:
            return sum(graph.values[name].size for name in node.writes)
        if isinstance(self.cost, int):
            return self.cost * graph.values[node.inputs[0]].size
        return self.cost(self._values(node, graph), node.attrs)

    def arranged(self, node: Node, graph: Graph) -> Mapping[str, int]:
        """Rate (compiler/cost.py) -> elements that the kernel rearranges at this rate for its inner
        loops; time estimates add them to `flops`."""
        return {}

    def named(self, node: Node) -> dict[str, str]:
        """Value names by operand, "" if absent."""
        named = [*zip(self.inputs, node.inputs, strict=False)]
        named += zip(self.outputs, node.outputs, strict=False)
        return {operand: value for operand, value in named if operand != "-"}

    def _values(self, node: Node, graph: Graph) -> dict[str, Value]:
        """Values by operand; a gradient dx stands in for a missing x."""
        result = {name: graph.values[value] for name, value in self.named(node).items() if value}
        return {name[1:]: value for name, value in result.items() if name[0] == "d"} | result


class Adding(Op):
    """An op whose kernel adds to its output; a new output is cleared first."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        out = graph.values[node.outputs[0]]
        clear = Call("fill", {"y": out.name, "value": 0.0, "n": out.size})
        return [*([] if node.attrs["acc"] else [clear]), self.call(node, graph)]


@functools.cache
def _scalars(kernel: str) -> tuple[str, ...]:
    """Kernel operands that rows do not name: scalars, groups of scalars, the control block."""
    try:
        spec = variants(kernel)[0].spec
    except UnsupportedOpError as error:
        raise UnsupportedOpError(
            f"{error} Ops need it in a file of a folder in kernels/."
        ) from error
    named = {o.name for o in spec.operands if o.is_reference or o.mode == "t"} - {"ctl"}
    return tuple(name for name, _ in spec.fields if name not in named)


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


_OPS: dict[str, Op] = {}
_ONNX: dict[str, Callable[[ImportContext, OnnxNode], None]] = {}
_JOINED: dict[str, Joined] = {}
_WEIGHT_SLOTS: dict[str, tuple[int, ...]] = {}
_BUFFER_SLOTS: dict[str, tuple[int, ...]] = {}
_VECTOR_SLOTS: dict[str, tuple[int, ...]] = {}
_INTEGERS: dict[str, tuple[int, ...]] = {}
_ORDERED: set[str] = set()


def register(op: Op) -> Op:
    """Add an ir op to the table."""
    if op.name in _OPS:
        raise ValueError(f"op {op.name} is registered twice")
    _OPS[op.name] = op
    return op


def onnx_rule(
    *op_types: str,
    weights: tuple[int, ...] = (),
    buffers: tuple[int, ...] = (),
    vectors: tuple[int, ...] = (),
    joined: Joined = no_axes,
    integers: tuple[int, ...] = (),
    ordered: Collection[str] = (),
):
    """Register a rule for ONNX op types.

    Args:
      integers: inputs that may be integers in ONNX but not in the rule; if they are, the rule is
        applied to float32 copies and its first output is converted back.
      joined: function that returns axes over which elements are combined.
      ordered: those of these types whose result depends on the order of integers only, so that a
        constant beyond 32 bits is like the closest one of 32 bits.
      weights: inputs whose initializers are parameters if there is no metadata.
      buffers: inputs whose initializers are running statistics.
      vectors: those of `weights` that are vectors, although they have more axes, such as one of
        directions.
    Raises:
      ValueError: a type has a rule already.
    """

    def add(rule: Callable[[ImportContext, OnnxNode], None]):
        for op_type in op_types:
            if op_type in _ONNX:
                raise ValueError(f"ONNX op {op_type} has two rules; expected one.")
            _ONNX[op_type], _JOINED[op_type] = rule, joined
            _WEIGHT_SLOTS[op_type], _BUFFER_SLOTS[op_type] = weights, buffers
            _VECTOR_SLOTS[op_type], _INTEGERS[op_type] = vectors, integers
        _ORDERED.update(ordered)
        return rule

    return add


def op(name: str) -> Op:
    """The ir op of this name.

    Raises:
      UnsupportedOpError: it is not registered.
    """
    try:
        return _OPS[name]
    except KeyError:
        hint = did_you_mean(name, _OPS)
        raise UnsupportedOpError(
            f"op {name!r}: not registered; expected a row in a file of ops/.{hint}"
        ) from None


def structure(node: Node) -> Structure | None:
    """How the operands of a node relate to each other."""
    return op(node.op).structure


def op_names() -> list[str]:
    """Every ir op."""
    return sorted(_OPS)


def rule(op_type: str) -> Callable[[ImportContext, OnnxNode], None] | None:
    """The ONNX rule of this op type, or None."""
    return _ONNX.get(op_type)


def integers(op_type: str) -> tuple[int, ...]:
    """Inputs of an ONNX op type that its rule takes as float32 if they are integers."""
    return _INTEGERS.get(op_type, ())


def onnx_names() -> list[str]:
    """ONNX op types that have a rule."""
    return sorted(_ONNX)


def orders(op_type: str) -> bool:
    """Whether an ONNX op of integers depends only on their order."""
    return op_type in _ORDERED


def joined(context: ImportContext, node: OnnxNode, rank: int) -> tuple[Collection[int], str]:
    """Axes of a node's first input (of `rank` dimensions) that can't be samples, and why."""
    return _JOINED.get(node.op_type, no_axes)(context, node, rank)


def slots(op_type: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(weight inputs, buffer inputs) of an ONNX op type."""
    return _WEIGHT_SLOTS.get(op_type, ()), _BUFFER_SLOTS.get(op_type, ())


def vectors(op_type: str) -> tuple[int, ...]:
    """Weight inputs of an ONNX op type that are vectors, although they have more axes."""
    return _VECTOR_SLOTS.get(op_type, ())
