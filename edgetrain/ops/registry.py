"""The base class of ops, and the table of ir ops by name; the family files fill it.

An ir op has a cost, gradient rule, in-place pairs and kernel calls. `onnx_ops.py` has the table of
ONNX ops.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UnsupportedOpError
from ..ir import Call, Graph, Node, Value
from ..ir.keys import key_of
from ..kernels.elementwise.formulas import FUSED
from ..kernels.registry import variants
from ..units.hints import did_you_mean
from .samples import Rule
from .sides import Sides, sides_of
from .storing import store_as
from .structure import Structure

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


_OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add an ir op to the table."""
    if op.name in _OPS:
        raise ValueError(f"op {op.name} is registered twice")
    _OPS[op.name] = op
    return op


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
