"""Converts a quantised graph to floats: integer weights become floats, QuantizeLinear rounds.

Between QuantizeLinear and DequantizeLinear, values are floats rounded to the grid of the integers
(ops/quantised.py). Integer products (QLinearConv, QLinearMatMul, and those of onnxruntime's dynamic
quantisation) become float products. The stored model keeps the file's graph; `Grid` says how
trained weights become integers again (program/quantised.py).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ..errors import ModelError
from ..ops.onnx_ops import onnx_op
from ..ops.quantised import moves_integers, spread
from .branches import flat, needed, reads, subgraphs
from .external import to_array
from .moved import Moved, free_names, of_floats

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_INTEGERS = {TensorProto.UINT8, TensorProto.INT8}
_WEIGHTS = {*_INTEGERS, TensorProto.UINT16, TensorProto.INT16, TensorProto.INT32}
_SUFFIX = "_quantized"  # suffix that onnxruntime adds to weights


class Grid(NamedTuple):
    """The values that integers represent: (integer - zero point) * scale.

    Attributes:
      scales: names of tensors; the scale is their product.
      zero: name of the zero point; "" for 0.
      axis: axis of the scales.
      block: elements along the axis that share a scale; 0: one scale per index.
    """

    scales: tuple[str, ...]
    zero: str
    axis: int
    block: int = 0


@dataclass
class Dequantized:
    """A quantised graph converted to floats.

    Attributes:
      proto: the float model; the original if nothing was quantised.
      weights: integer tensor -> (name of its floats, grid).
      warnings: notes for the user.
    """

    proto: onnx.ModelProto
    weights: dict[str, tuple[str, Grid]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def dequantized(proto: onnx.ModelProto, path: Path) -> Dequantized:
    """Convert a graph to floats; does not change `proto`.

    Raises:
      ModelError: scales are not constant, or quantize and dequantize nodes do not match.
    """
    if not any(_kind(node) in _RULES for node in flat(proto.graph.node)):
        return Dequantized(proto)
    return _Lift(proto, path).run()


def _kind(node: NodeProto) -> str:
    return node.op_type if node.domain in _DOMAINS else ""


def _is_arithmetic(node: NodeProto) -> bool:
    """Whether the node computes with its inputs; unsupported ops are reported later."""
    return node.domain in ("", "ai.onnx") and onnx_op(node.op_type).rule is not None


def _fail(node: NodeProto, found: str, expected: str) -> ModelError:
    return ModelError(f"node {node.name!r} ({node.op_type}): {found}; expected {expected}.")


def _attributes(node: NodeProto) -> dict[str, int]:
    return {a.name: a.i for a in node.attribute if a.type == onnx.AttributeProto.INT}


class _Held(NamedTuple):
    """An integer value kept as floats of the same name: its scale and zero point."""

    scale: np.ndarray
    zero: np.ndarray

    def is_same(self, scale: np.ndarray, zero: np.ndarray) -> bool:
        """Whether a node has this scale and zero point."""
        mine = (self.scale, self.zero)
        pairs = zip(mine, (scale, zero), strict=True)
        return all(np.array_equal(own.ravel(), other.ravel()) for own, other in pairs)


class _Product(NamedTuple):
    """An integer product whose Mul with its scales is still to come."""

    node: NodeProto
    data: str
    weight: str
    zero: str
    scale: str


class _Lift:
    """Converts the nodes in one pass.

    Attributes:
      held: integer values that are floats now.
      dynamic: output of DynamicQuantizeLinear -> (its floats, scale, zero point).
      products: names of integer products, cast or not.
      factors: product of a dynamic scale and a weight's scale -> (dynamic, weight's).
      makers: value -> the node that makes it.
      moved: constants after nodes that only move their numbers.
      computed: floats of integers that are computed from constants -> a note for the user.
    """

    def __init__(self, proto: onnx.ModelProto, path: Path) -> None:
        self.proto, self.path = proto, path
        graph = proto.graph
        self.tensors = dict(named_tensors(graph))
        self.taken = {*self.tensors, *(v.name for v in graph.input)}
        every = list(flat(graph.node))
        self.taken.update(name for node in every for name in (*node.input, *node.output))
        self.makers = {name: node for node in every for name in node.output}
        self.weights: dict[str, tuple[str, Grid]] = {}
        self.made: dict[str, np.ndarray] = {}
        self.nodes: list[NodeProto] = []
        self.held: dict[str, _Held] = {}
        self.dynamic: dict[str, tuple[str, str, str]] = {}
        self.products: dict[str, _Product] = {}
        self.factors: dict[str, tuple[str, str]] = {}
        self.moved = Moved(self.tensors)
        self.computed: dict[str, str] = {}

    def run(self) -> Dequantized:
        out = onnx.ModelProto()
        out.CopyFrom(self.proto)
        graph = out.graph
        nodes = self._lifted(graph)
        del graph.node[:]
        graph.node.extend(nodes)
        read = {name for node in nodes for name in reads(node)}
        read.update(value.name for value in graph.output)
        quantised = {name for node in self.proto.graph.node for name in reads(node)}
        kept = [t for t in graph.initializer if t.name in read or t.name not in quantised]
        kept = [t for t in kept if t.name not in self.made]
        floats = [numpy_helper.from_array(a, n) for n, a in self.made.items() if n in read]
        del graph.initializer[:]
        graph.initializer.extend([*kept, *floats])
        return Dequantized(out, self.weights, self._warnings(nodes))

    def _warnings(self, nodes: Sequence[NodeProto]) -> tuple[str, ...]:
        read = {name for node in nodes for name in reads(node)}
        notes = [text for name, text in self.computed.items() if name in read]
        count = sum(data in read for data, _, _ in self.dynamic.values())
        if count:
            notes.append(
                f"{count} activations are quantised dynamically (DynamicQuantizeLinear); they are "
                "trained as floats. --quantized applies only to weights here."
            )
        return tuple(notes)

    def _lifted(self, graph: onnx.GraphProto) -> list[NodeProto]:
        """The converted nodes of the graph, or of a branch."""
        outer, self.nodes = self.nodes, []
        for node in graph.node:
            own = _RULES.get(_kind(node)) or _FOLLOWED.get(_kind(node))
            if own is None or not own(self, node):
                self._keep(node)
        nodes, self.nodes = needed(self.nodes, [value.name for value in graph.output]), outer
        return nodes

    def _keep(self, node: NodeProto) -> None:
        """Keep a float node, one that only moves integers, or one with branches."""
        first = node.input[0] if node.input else ""
        if moves_integers(node.op_type) and first in self.held:
            if self.held[first].scale.size > 1:
                raise _fail(node, "it moves integers with one scale per channel", "one scale")
            self.held |= dict.fromkeys(node.output, self.held[first])
        elif subgraphs(node):
            node = self._branched(node)
        elif _is_arithmetic(node) and (computed := self._first_held(node)):
            raise _fail(node, f"it computes with integers {computed!r}", "a DequantizeLinear first")
        self.moved.follow(node)
        self.nodes.append(node)

    def _branched(self, node: NodeProto) -> NodeProto:
        """The node with converted branches."""
        out = NodeProto()
        out.CopyFrom(node)
        for part in subgraphs(out):
            nodes = self._lifted(part)
            del part.node[:]
            part.node.extend(nodes)
        for k, name in enumerate(node.output):
            made = [part.output[k].name for part in subgraphs(node) if k < len(part.output)]
            grids = [self.held.get(given) for given in made]
            first = next((grid for grid in grids if grid), None)
            if first is None:
                continue
            if not all(grid and grid.is_same(*first) for grid in grids):
                raise _fail(
                    node,
                    f"output {name!r} has integers that its branches quantise differently",
                    "the same scale and zero point; dequantise inside the branches",
                )
            self.held[name] = first
        return out

    # Constants.

    def _first_held(self, node: NodeProto) -> str:
        return next((name for name in reads(node) if name in self.held), "")

    def array(self, node: NodeProto, index: int, what: str) -> np.ndarray:
        """A constant operand."""
        name = _operand(node, index)
        if name not in self.tensors:
            raise _fail(node, f"{what} {name!r} is not constant", "a constant")
        return to_array(self.tensors[name], self.path)

    def scale(self, node: NodeProto, index: int) -> np.ndarray:
        """A constant scale; its values must be finite and above 0."""
        result = self.array(node, index, "a scale").astype(np.float32)
        if not (np.isfinite(result) & (result > 0)).all() or not result.size:
            raise _fail(node, f"scale {_operand(node, index)!r}", "finite numbers above 0")
        return result

    def zero(self, node: NodeProto, index: int, scale: np.ndarray) -> np.ndarray:
        """A constant zero point per scale; uint8 0 if the node has no zero point."""
        if not _operand(node, index):
            return np.zeros(scale.shape, np.uint8)
        result = self.array(node, index, "a zero point")
        if result.dtype.kind not in "iu" or result.size != scale.size:
            raise _fail(
                node,
                f"{result.size} zero points of {result.dtype} for {scale.size} scales",
                "one integer per scale",
            )
        return result.reshape(scale.shape)

    # What is made.

    def emit(self, op: str, inputs: Sequence[str], output: str, like: NodeProto, **attrs) -> None:
        """Add a node that replaces `like`."""
        name = like.name or f"{like.op_type}_{len(self.nodes)}"
        node = helper.make_node(op, inputs, [output], name, **attrs)
        self.nodes.append(node)

    def named(self, base: str) -> str:
        """An unused name."""
        name = base
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        return name

    def rounded(
        self, source: str, out: str, like: NodeProto, scale: np.ndarray, zero: np.ndarray, axis: int
    ) -> None:
        """Add a node that rounds to the grid; scales and zero points are its attributes.

        Raises:
          ModelError: the integers do not have 8 bits.
        """
        if zero.dtype not in (np.dtype(np.uint8), np.dtype(np.int8)):
            raise _fail(like, f"integers of type {zero.dtype}", "uint8 or int8; quantise to 8 bits")
        self.emit(
            "QuantizeLinear",
            [source],
            out,
            like,
            axis=axis,
            scale=numpy_helper.from_array(scale, "scale"),
            zero_point=numpy_helper.from_array(zero, "zero_point"),
        )

    def weight(self, node: NodeProto, name: str, grid: Grid, scale, zero, out: str = "") -> str:
        """Add float weights for integers of the file, rounded to their grid.

        Args:
          out: name of the rounded floats; "": a new name.
        Returns:
          Their name.
        """
        tensor = self.tensors[name]
        if tensor.data_type not in _WEIGHTS:
            kind = TensorProto.DataType.Name(tensor.data_type).lower()
            raise _fail(node, f"{name!r} has type {kind}", "int8, uint8, int16, uint16 or int32")
        if name in self.weights and self.weights[name][1] != grid:
            raise _fail(node, f"{name!r} is used with two scales", "one per tensor")
        integers = to_array(tensor, self.path)
        scale, zero = (spread(a, integers.shape, grid.axis, grid.block) for a in (scale, zero))
        if scale is None or zero is None:
            raise _fail(
                node,
                f"a scale of shape {list(self._shape(grid))} for {name!r} of shape "
                f"{list(integers.shape)}",
                f"one, or one per index of axis {grid.axis}",
            )
        rounds = tensor.data_type != TensorProto.INT32  # a bias: finer than float32
        if name not in self.weights:
            floats = out if out and not rounds else self._base(name)
            self.weights[name] = floats, grid
            numbers = (integers.astype(np.float32) - zero.astype(np.float32)) * scale
            self.made[floats] = numbers.astype(np.float32)
        floats = self.weights[name][0]
        if rounds:
            out = out or self.named(f"{floats}.rounded")
            self.rounded(floats, out, node, scale, zero.astype(integers.dtype), grid.axis)
            return out
        if out not in ("", floats):
            self.emit("Identity", [floats], out, node)
        return out or floats

    def constant(self, node: NodeProto, index: int, grid: Grid, scale, zero, out: str = "") -> str:
        """The float weights for an operand of constant integers; "" if it isn't one.

        Moves between the integers and the node are applied to the floats instead.
        """
        name = node.input[index]
        if name in self.tensors:
            return self.weight(node, name, grid, scale, zero, out)
        if name not in self.moved:
            return ""
        path = self.moved.path(name)
        source = path[0].input[0]
        kind = helper.tensor_dtype_to_np_dtype(self.tensors[source].data_type)
        if kind.kind in "iu" and (zero.astype(kind) != zero).any():
            raise _fail(node, f"a zero point beyond the {kind} of {source!r}", f"one of {kind}")
        if scale.size > 1:
            axis = None if grid.block else self.moved.axis_before(path, grid.axis)
            if axis is None:
                raise _fail(
                    node,
                    f"integers {name!r} are moved by {path[-1].op_type} and have one scale per "
                    "channel",
                    f"one scale, or {source!r} itself",
                )
            grid = grid._replace(axis=axis)
        made = self.weight(node, source, grid, scale, zero)
        names = free_names(path, self.named, {name: out})
        self.nodes += of_floats(path, made, names)
        return names[name]

    def sources(self, name: str) -> list[str]:
        """The integer constants that a value is computed from; none if it depends on data."""
        found, pending, seen = [], [name], {name}
        while pending:
            source = pending.pop()
            if source in self.tensors:
                found += [source] if self.tensors[source].data_type in _WEIGHTS else []
            elif source not in self.makers:
                return []
            else:
                more = {n for n in reads(self.makers[source]) if n} - seen
                seen |= more
                pending += sorted(more)
        return found

    def _base(self, name: str) -> str:
        """The name of the floats of an integer tensor."""
        base = name.removesuffix(_SUFFIX)
        return base if base == name else self.named(base)

    def _shape(self, grid: Grid) -> tuple[int, ...]:
        return tuple(self.tensors[grid.scales[-1]].dims)

    def floats(self, node: NodeProto, index: int, scale: np.ndarray, zero: np.ndarray) -> str:
        """The floats of integers from a QuantizeLinear; "" if an unknown op made them.

        Raises:
          ModelError: they have another scale or zero point.
        """
        name = _operand(node, index)
        if name not in self.held:
            return ""
        if not self.held[name].is_same(scale, zero):
            raise _fail(
                node,
                f"{name!r} was quantised with another scale or zero point",
                "the same in both nodes",
            )
        return name


def _operand(node: NodeProto, index: int) -> str:
    return node.input[index] if index < len(node.input) else ""


def named_tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """Initializers and values of Constant nodes, by name."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield node.output[0], attribute.t


# Rules return whether they replaced the node; others are kept, and refused later if needed.


def _quantize(lift: _Lift, node: NodeProto) -> bool:
    """x, scale, zero point -> integers, kept as floats of the same name."""
    given = _attributes(node)
    scale = lift.scale(node, 1)
    zero = lift.zero(node, 2, scale)
    if given.get("output_dtype"):
        dtype = helper.tensor_dtype_to_np_dtype(given["output_dtype"])
        if _operand(node, 2) and zero.dtype != dtype:
            raise _fail(node, f"output_dtype {dtype}, but zero point {zero.dtype}", "the same type")
        zero = zero.astype(dtype)
    if given.get("block_size"):
        raise _fail(node, f"activations in blocks of {given['block_size']}", "no blocks")
    lift.rounded(node.input[0], node.output[0], node, scale, zero, given.get("axis", 1))
    lift.held[node.output[0]] = _Held(scale, zero)
    return True


def _dequantize(lift: _Lift, node: NodeProto) -> bool:
    """Convert integers of the file, or from a QuantizeLinear, to floats."""
    name, given = node.input[0], _attributes(node)
    scale = lift.scale(node, 1)
    zero = lift.zero(node, 2, scale)
    grid = Grid(
        (node.input[1],), _operand(node, 2), given.get("axis", 1), given.get("block_size", 0)
    )
    if lift.constant(node, 0, grid, scale, zero, node.output[0]):
        return True
    source = lift.floats(node, 0, scale, zero)
    if source:
        lift.emit("DequantizeLinear", [source], node.output[0], node)
    elif sources := lift.sources(name):
        lift.computed[node.output[0]] = (
            f"node {node.name!r} (DequantizeLinear): its integers {name!r} are computed from "
            f"{sources[0]!r}, so they are not trained. Pass it the initializer itself."
        )
    return bool(source)


def _factor(lift: _Lift, node: NodeProto, index: int, axis: int) -> str:
    """The floats of an operand (x, scale, zero point) of an integer product, as _Lift.floats."""
    scale = lift.scale(node, index + 1)
    zero = lift.zero(node, index + 2, scale)
    grid = Grid((node.input[index + 1],), node.input[index + 2], axis)
    known = lift.constant(node, index, grid, scale, zero)
    return known or lift.floats(node, index, scale, zero)


def _bias(lift: _Lift, node: NodeProto, index: int) -> list[str]:
    """An optional integer bias; its scale is the product of those of data and weight."""
    if not _operand(node, index):
        return []
    lift.array(node, index, "a bias")
    scale = lift.scale(node, 1) * lift.scale(node, 4)
    grid = Grid((node.input[1], node.input[4]), "", -1)
    return [lift.weight(node, node.input[index], grid, scale, np.zeros(scale.shape, np.int32))]


def _product(
    lift: _Lift, node: NodeProto, op: str, inputs: Sequence[str], result: int, **attrs
) -> bool:
    """Add a float node, its result rounded to the grid in operand `result` and the next."""
    if "" in inputs:
        return False
    if not _operand(node, result):
        lift.emit(op, inputs, node.output[0], node, **attrs)
        return True
    scale = lift.scale(node, result)
    zero = lift.zero(node, result + 1, scale)
    whole = lift.named(f"{node.output[0]}.product")
    lift.emit(op, inputs, whole, node, **attrs)
    lift.rounded(whole, node.output[0], node, scale, zero, 1)
    lift.held[node.output[0]] = _Held(scale, zero)
    return True


def _given(node: NodeProto) -> dict[str, object]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _qlinear_conv(lift: _Lift, node: NodeProto) -> bool:
    inputs = [_factor(lift, node, 0, 1), _factor(lift, node, 3, 0), *_bias(lift, node, 8)]
    return _product(lift, node, "Conv", inputs, 6, **_given(node))


def _qlinear_gemm(lift: _Lift, node: NodeProto) -> bool:
    given = _given(node)
    given["beta"] = given.get("alpha", 1.0)  # alpha multiplies the bias too
    inputs = [_factor(lift, node, 0, 1), _factor(lift, node, 3, 0 if given.get("transB") else 1)]
    return _product(lift, node, "Gemm", [*inputs, *_bias(lift, node, 6)], 7, **given)


def _qlinear_two(lift: _Lift, node: NodeProto) -> bool:
    op = node.op_type.removeprefix("QLinear")
    return _product(lift, node, op, [_factor(lift, node, 0, -2), _factor(lift, node, 3, -1)], 6)


def _dynamic(lift: _Lift, node: NodeProto) -> bool:
    integers, scale, zero = node.output
    lift.dynamic[integers] = node.input[0], scale, zero
    return False


def _integer_product(lift: _Lift, node: NodeProto) -> bool:
    data, weight, zero = (_operand(node, k) for k in (0, 1, 3))
    result = lift.dynamic.get(data)
    if result and weight in lift.tensors and _operand(node, 2) == result[2]:
        lift.products[node.output[0]] = _Product(node, result[0], weight, zero, result[1])
    return False


def _cast(lift: _Lift, node: NodeProto) -> bool:
    if node.input[0] in lift.products:
        lift.products[node.output[0]] = lift.products[node.input[0]]
    return False


def _scaled(lift: _Lift, node: NodeProto) -> bool:
    """Handle the Mul of an integer product with both scales, and the product of the scales."""
    dynamic = {scale for _, scale, _ in lift.dynamic.values()}
    for one, other in (node.input[:2], node.input[1::-1]):
        if one in dynamic and other in lift.tensors:
            lift.factors[node.output[0]] = one, other
            return False
        if one in lift.products and other in lift.factors:
            product, (scale, own) = lift.products[one], lift.factors[other]
            return scale == product.scale and _unscaled(lift, node, product, own)
    return False


def _unscaled(lift: _Lift, node: NodeProto, product: _Product, name: str) -> bool:
    conv = product.node.op_type == "ConvInteger"
    scale = to_array(lift.tensors[name], lift.path).astype(np.float32)
    zero = np.zeros(1, np.int8)
    if product.zero:
        if product.zero not in lift.tensors:
            return False
        zero = to_array(lift.tensors[product.zero], lift.path)
    flat, zeros = scale.reshape(-1), zero.reshape(-1)
    if 1 not in (flat.size, zeros.size) and flat.size != zeros.size:
        return False
    flat, zeros = np.broadcast_arrays(flat, zeros)
    grid = Grid((name,), product.zero, 0 if conv else -1)
    rounded = lift.weight(product.node, product.weight, grid, flat, zeros)
    op = "Conv" if conv else "MatMul"
    lift.emit(op, [product.data, rounded], node.output[0], product.node, **_given(product.node))
    return True


_RULES: Mapping[str, Callable[[_Lift, NodeProto], bool]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "QLinearConv": _qlinear_conv,
    "QGemm": _qlinear_gemm,
    "QLinearMatMul": _qlinear_two,
    "QLinearAdd": _qlinear_two,
    "QLinearMul": _qlinear_two,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _integer_product,
    "ConvInteger": _integer_product,
}
LIFTED = frozenset(_RULES)  # ops that are rewritten here
_FOLLOWED = {"Cast": _cast, "Mul": _scaled}  # for results of those
