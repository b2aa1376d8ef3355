"""Infers shapes and folds shape arithmetic, node by node.

All dimensions are integers here, so the ops' rules infer shapes, and numpy folds what an ONNX file
computes from shapes. Limits bound the cost of malformed files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ...errors import ModelError, UnsupportedOpError, UsageError
from ...formats import FORMATS
from ...ir import Builder, Graph, Value
from ...ops.allowance import Allowance, check_list
from ...ops.integers import as_floats, in_kind_of
from ...ops.model import InputSpec, Model, check_dims
from ...ops.onnx_ops import OnnxNode, Subgraph, onnx_op
from .fold import fold, own_nbytes
from .makers import Makers

MAX_NODES = 20_000  # of one graph; the planner's time grows faster than linearly
MAX_VALUE_NBYTES = 2**40
MAX_RANK = 8

# Names that autodiff and the update tape add to every graph.
RESERVED = {"ctl", "update.partials", "update.rows"}
RESERVED |= {f"loss.{name}" for name in ("target", "partials", "cw", "weight")}


@dataclass(frozen=True)
class Bound:
    """A forward graph and the arrays of its persistent values.

    Attributes:
      graph: its outputs are the model's outputs.
      arrays: float32 or int32 arrays of parameters, buffers and constants by value name.
      outputs: ONNX output name -> value name.
    """

    graph: Graph
    arrays: Mapping[str, np.ndarray]
    outputs: Mapping[str, str]


_Kind = TypeVar("_Kind", bound="Context")


def bound_context(
    model: Model,
    batch: int,
    dims: Mapping[str, int],
    kind: type[_Kind],
    allowance: Allowance | None = None,
) -> tuple[_Kind, list[OnnxNode]]:
    """Process the nodes that outputs need; returns the context and these nodes.

    Raises: see `bind`.
    """
    nodes = _needed(model.nodes, model.outputs)
    check_dims(model, dims)
    if len(nodes) > MAX_NODES:
        raise ModelError(
            f"{model.source or model.name}: {len(nodes)} nodes; expected at most {MAX_NODES}. "
            "Export loops as LSTM, GRU or RNN nodes, or a smaller model."
        )
    context = kind(model, batch, dims, allowance)
    context.expect(nodes, model.outputs)
    try:
        for index, node in enumerate(nodes):  # noqa: B007 - read after the loop fails
            context.run(node)
    except ModelError:
        rest = nodes[index:]
        context.unsupported += [n for n in rest if not onnx_op(n.op_type).known]
        if not context.unsupported:
            raise
    if context.unsupported:
        listed = sorted({node.op_type for node in context.unsupported})
        raise UnsupportedOpError(_unsupported(context.unsupported, model.opset), tuple(listed))
    return context, nodes


def _needed(nodes: Sequence[OnnxNode], outputs: Sequence[str]) -> list[OnnxNode]:
    """Nodes that outputs depend on."""
    wanted, out = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            out.append(node)
            wanted.update(node.inputs)
    return out[::-1]


def _unsupported(nodes: Sequence[OnnxNode], opset: int) -> str:
    listed = "; ".join(f"node {n.name!r}: ONNX {n.op_type} (opset {opset})" for n in nodes[:20])
    more = f"; and {len(nodes) - 20} more" if len(nodes) > 20 else ""
    return f"{listed}{more}: not supported. 'edgetrain ops' lists supported ops."


_MALFORMED = (
    KeyError,
    IndexError,
    ValueError,
    TypeError,
    AttributeError,
    ZeroDivisionError,
    OverflowError,
)


# Numpy kind of a constant -> its storage type: booleans take a byte.
_KINDS = {"f": np.float32, "b": np.uint8}
_INT32 = np.iinfo(np.int32)


def _dtype(array: np.ndarray) -> str:
    return {"f": "f32", "b": "u8", "u": "u8"}.get(array.dtype.kind, "i32")


class Context(Makers):
    """Implements ImportContext of ops/onnx_ops.py."""

    def __init__(
        self,
        model: Model,
        batch: int,
        dims: Mapping[str, int],
        allowance: Allowance | None = None,
    ) -> None:
        self.allowance = Allowance() if allowance is None else allowance.restart()
        self.opset, self.batch = model.opset, batch
        self._model, self._dims = model, dict(dims)
        self._builder, self._role = Builder(), "activation"
        self._names: dict[str, str] = {}
        self._consts: dict[str, np.ndarray] = {}
        self._clipped: set[str] = set()  # constants with integers beyond 32 bits
        self._arrays: dict[str, np.ndarray] = {}
        self.unsupported: list[OnnxNode] = []
        self._lost: set[str] = set()  # values that unsupported nodes would have made
        self._temporaries: set[str] = set()
        self._read: set[str] = set()  # names that some node or the caller reads
        self._varying: set[str] = set()  # constants computed from the shape of a value
        self._taken = {*RESERVED, *model.initializers, *(s.name for s in model.inputs)}
        self._taken.update(name for node in model.nodes for name in node.outputs)
        for name in RESERVED.intersection([*model.initializers, *(s.name for s in model.inputs)]):
            raise ModelError(f"{name!r}: this name is reserved. Rename it in the model.")
        trainable = {*model.parameters, *model.buffers}
        for name, array in model.initializers.items():
            if name not in trainable:
                self._consts[name] = array
        self._inputs = self._add_inputs(model.inputs)

    def _add_inputs(self, specs: Sequence[InputSpec]) -> list[str]:
        """Names of the input values, with samples along axis 0."""
        sized = [spec for spec in specs if spec.dims]
        for spec in sized:
            if isinstance(name := spec.dims[spec.batch], str):
                self._dims.setdefault(name, self.batch)
        return [self._add_input(spec) for spec in sized]

    def _check_scalar(self, name: str) -> None:
        """Raise ModelError if this is a scalar input, which would have to be a constant."""
        if any(spec.name == name and not spec.dims for spec in self._model.inputs):
            raise ModelError(
                f"input {name!r}: it is a scalar and has no value. Pass --input {name}=VALUE, or "
                f"inputs={{{name!r}: VALUE}} in Python."
            )

    def _add_input(self, spec: InputSpec) -> str:
        shape = [self._size_of(spec, axis) for axis in range(len(spec.dims))]
        shape.insert(0, shape.pop(spec.batch))
        dtype = "f32" if spec.dtype == "float" else "i32"
        result = self._builder.value(spec.name, shape, dtype, "input")
        self._names[spec.name] = result
        if spec.batch:  # nodes read it in the file's layout
            perm = [*range(1, spec.batch + 1), 0, *range(spec.batch + 1, len(shape))]
            moved = f"{spec.name}.moved"
            while moved in self._taken:
                moved += "'"
            node = OnnxNode(spec.name, "Transpose", (spec.name,), (moved,), {"perm": perm})
            self.run(node)
            self._names[spec.name] = self._names.pop(moved)
        return result

    def _size_of(self, spec: InputSpec, axis: int) -> int:
        dim, label = spec.dims[axis], spec.label(axis)
        if axis == spec.batch:
            return self.batch
        if isinstance(dim, int):
            return dim
        if label not in self._dims:
            raise UsageError(
                f"input {spec.name!r}: dimension {axis} ({label!r}) has no size. Pass --dim "
                f"{label}=SIZE, or if it is the batch, --batch-axis {spec.name}={axis} (in Python "
                f"dims={{{label!r}: SIZE}} or batch_axis={{{spec.name!r}: {axis}}})."
            )
        return self._dims[label]

    def expect(self, nodes: Sequence[OnnxNode], outputs: Sequence[str]) -> None:
        """Record what these nodes will read."""
        self._read.update(outputs, *(node.inputs for node in nodes))
        for spec in self._model.inputs:
            if spec.name in self._read:
                self._check_scalar(spec.name)

    # Queries for rules.

    def reads(self, node: OnnxNode, index: int) -> bool:
        """Whether the output is read."""
        name = node.outputs[index] if index < len(node.outputs) else ""
        return bool(name) and name in self._read

    def has(self, node: OnnxNode, index: int) -> bool:
        """Whether the optional input is given."""
        return index < len(node.inputs) and bool(node.inputs[index])

    def const(self, node: OnnxNode, index: int) -> np.ndarray | None:
        """The input as an array if constant, else None."""
        array = self._consts.get(node.inputs[index]) if self.has(node, index) else None
        if array is not None:
            self.allowance.spend(node, array.size)
        return array

    def ints(self, node: OnnxNode, index: int, attr: str = "") -> list[int] | None:
        """A list of ints, which is an input in newer opsets and an attribute in older ones."""
        if attr and attr in node.attrs:
            value = node.attrs[attr]
            return [int(v) for v in (value if isinstance(value, list | tuple) else [value])]
        if not self.has(node, index):
            return None
        array = self.const(node, index)
        if array is None:
            raise node.fail(f"input {index} depends on values", "a constant (bind it with --dim)")
        check_list(node, index, array)
        return [int(v) for v in array.ravel()]

    def value(self, node: OnnxNode, index: int) -> Value:
        """The input as an ir value; a constant is placed in the arena."""
        if not self.has(node, index):
            raise node.fail(f"input {index} is missing", "an input")
        name = node.inputs[index]
        if name not in self._names:
            self._names[name] = self._materialise(node, name)
        if name in self._clipped and not onnx_op(node.op_type).ordered:
            raise node.fail(f"input {name!r} has integers of more than 32 bits", "32 bits")
        return self._builder.values[self._names[name]]

    def _materialise(self, node: OnnxNode, name: str) -> str:
        model = self._model
        if name in model.initializers and name not in self._consts:
            role = "parameter" if name in model.parameters else "buffer"
            array, label = model.initializers[name].astype(np.float32, copy=False), name
        elif name in self._consts:
            array, role = self._consts[name], "constant"
            label = name or f"{node.name}.constant"
            kind = _KINDS.get(array.dtype.kind, np.int32)
            array = model.memory.converted(name, self._in_range(node, name, array), kind)
        else:
            self._check_scalar(name)
            raise node.fail(f"input {name!r} is not defined", "an input, initializer or output")
        self._check(node, array.shape)
        value = self._builder.value(label, array.shape, _dtype(array), role)
        self._arrays[value] = array
        return value

    def _in_range(self, node: OnnxNode, name: str, array: np.ndarray) -> np.ndarray:
        """A constant with its integers clipped to 32 bits."""
        wide = array.dtype.kind in "iu" and not np.can_cast(array.dtype, np.int32)
        if not wide or not array.size:
            return array
        self.allowance.spend(node, array.size)
        if _INT32.min <= array.min() and array.max() <= _INT32.max:
            return array
        self._clipped.add(name)
        return np.clip(array, _INT32.min, _INT32.max)

    # Actions for rules.

    def room(self, node: OnnxNode, elements: int, itemsize: int = 4, weight: int = 1) -> None:
        """Check limits before making an array whose size depends on the file.

        Args:
          weight: cost per element in nanoseconds.
        Raises:
          ModelError: too many elements.
        """
        self.allowance.room(node, elements * itemsize)
        self.allowance.spend(node, elements, weight)

    def constant(self, node: OnnxNode, tag: str, array: np.ndarray) -> str:
        """A new constant in the arena."""
        self.allowance.hold(node, array.nbytes)
        name = self._own(node, tag, array.shape, _dtype(array), "constant")
        self._arrays[name] = array
        return name

    def named(self, name: str) -> Value:
        """The ir value of this name."""
        return self._builder.values[name]

    def temporary(self, node, tag, shape, dtype="f32", role=None) -> str:
        """A new value without an ONNX name, such as batch statistics."""
        return self._own(node, tag, shape, dtype, role or self._role)

    def label(self, node: OnnxNode, tag: str) -> str:
        """A name for a value made inside a node, different from all names in the file."""
        name = f"{node.outputs[0]}.{tag}"
        while name in self._taken:
            name += "'"
        return name

    def _own(
        self, node: OnnxNode, tag: str, shape, dtype="f32", role="activation", view_of=""
    ) -> str:
        """A new value whose name differs from all names in the file."""
        self._check(node, shape)
        name = self._builder.value(self.label(node, tag), shape, dtype, role, view_of)
        self._temporaries.add(name)
        return name

    def _named(self, name: str, shape, dtype: str, role: str, view_of: str = "") -> str:
        """Add the value for an ONNX name; reserved names are changed."""
        label = f"{name}'" if name in RESERVED else name
        self._names[name] = self._builder.value(label, shape, dtype, role, view_of)
        return self._names[name]

    def emit(self, node, op, inputs, shapes, attrs=None, *, outputs=None, dtype="f32", role=None):
        """Append an ir node; `shapes` has one shape per output.

        Args:
          outputs: ONNX names of the outputs, or existing ir values (from `temporary`); default: the
            node's outputs.
        """
        outputs = list(node.outputs[: len(shapes)] if outputs is None else outputs)
        names = []
        for name, shape in zip(outputs, shapes, strict=True):
            if name in self._temporaries:
                names.append(name)
                continue
            self._check(node, shape)
            names.append(self._named(name, shape, dtype, role or self._role))
        inputs = [v.name if isinstance(v, Value) else v for v in inputs]
        self._builder.node(op, inputs, names, attrs, name=node.name, origin=node.name)
        return names

    def bind(self, node: OnnxNode, index: int, name: str) -> None:
        """Set output `index` to an existing ir value."""
        self._names[node.outputs[index]] = name

    def view(self, node: OnnxNode, name: str, shape: Sequence[int]) -> str:
        """Set output 0 to a view of `name` with another shape."""
        source = self._builder.values[name]
        if int(np.prod(shape, dtype=object)) != source.size:
            raise node.fail(
                f"shape {list(source.shape)} changed to {list(shape)}",
                f"{source.size} elements",
            )
        self._check(node, shape)
        out = self._named(node.outputs[0], shape, source.dtype, source.role, name)
        self._builder.node("view", [name], [out], name=node.name, origin=node.name)
        return out

    def reshaped(self, node: OnnxNode, source: Value, shape: Sequence[int]) -> str:
        """A view without an ONNX name."""
        out = self._own(node, "view", shape, source.dtype, source.role, source.name)
        self._builder.node("view", [source.name], [out], origin=node.name)
        return out

    def inline(self, part: Subgraph) -> None:
        """Process the nodes of a branch as part of the outer graph.

        Another branch, processed before, may have used the same names for other values.
        """
        nodes = _needed(part.nodes, part.outputs)
        for name in (*part.arrays, *(name for node in nodes for name in node.outputs)):
            self._names.pop(name, None)
            self._consts.pop(name, None)
        self._consts.update(part.arrays)
        self.expect(nodes, part.outputs)
        for node in nodes:
            self.run(node)

    @contextmanager
    def in_float32(self) -> Iterator[None]:
        """Within the context, new values are stored in float32 whatever the precision."""
        before, self._role = self._role, "statistic"
        try:
            yield
        finally:
            self._role = before

    def fold(self, node: OnnxNode, index: int, array: np.ndarray) -> None:
        """Set output `index` to a constant."""
        self._consts[node.outputs[index]] = np.asarray(array)

    def _check(self, node: OnnxNode, shape: Sequence[int]) -> None:
        size = 4
        for dim in shape:
            size *= int(dim)
        if any(d < 1 for d in shape) or size > MAX_VALUE_NBYTES or len(shape) > MAX_RANK:
            raise node.fail(
                f"an output of shape {list(map(int, shape))}",
                f"positive sizes, at most {MAX_RANK} dimensions and {MAX_VALUE_NBYTES} bytes",
            )

    def run(self, node: OnnxNode) -> None:
        """Fold the node or apply its rule; record unsupported nodes and their dependents."""
        if self._lost.intersection(node.inputs):
            self._lost.update(node.outputs)
            return
        try:
            if self._folded(node):
                return
            rule = onnx_op(node.op_type).rule
            if rule is not None:
                self._apply(rule, node)
                return
        except _MALFORMED as error:
            raise node.fail(
                f"attributes or shapes that do not fit ({error!r})", "a valid node"
            ) from error
        self.unsupported.append(node)
        self._lost.update(node.outputs)

    def _apply(self, rule: Callable[..., None], node: OnnxNode) -> None:
        """Apply a rule; integers that it has no kernels for are computed as float32."""
        slots = [k for k in onnx_op(node.op_type).integers if self.has(node, k)]
        known = [self.value(node, k) for k in slots if node.inputs[k] in self._names]
        whole = [value for value in known if not FORMATS[value.dtype].floats]
        if not whole:
            rule(self, node)
            return
        inputs, result = list(node.inputs), self.label(node, "floats")
        for k in slots:
            inputs[k] = self.label(node, f"input{k}")
            array = self.const(node, k)
            if array is None:
                floats = as_floats(self, node, self.value(node, k))
                self._names[inputs[k]] = floats.name
            else:
                self._consts[inputs[k]] = array.astype(np.float32)
        outputs = (result, *node.outputs[1:])
        with self.in_float32():
            rule(self, replace(node, inputs=tuple(inputs), outputs=outputs))
        in_kind_of(self, node, self.named(self._names[result]), whole[0])

    def _folded(self, node: OnnxNode) -> bool:
        """Fold the node if its inputs are constant; returns whether it was folded."""
        op = onnx_op(node.op_type)
        if op.measure is not None:
            value = self._consts.get(node.inputs[0])
            shape = self.value(node, 0).shape if value is None else value.shape
            self.fold(node, 0, np.array(op.measure(node, shape), np.int64))
            self._varying.update(node.outputs if value is None else ())
            return True
        known = [self._consts.get(name) if name else None for name in node.inputs]
        complete = all(c is not None or not n for c, n in zip(known, node.inputs, strict=True))
        if not complete or op.fold is None:
            return False
        varies = not self._varying.isdisjoint(node.inputs)
        memory = self._model.memory
        outputs = memory.recall(node, known)
        if outputs is None:
            outputs = fold(node, known, self.allowance, varies)
            memory.keep(node, known, outputs)
        for k, array in enumerate(outputs):
            self.allowance.hold(node, own_nbytes(array, known), varies)
            self.fold(node, k, array)
        if varies:
            self._varying.update(node.outputs)
        return True

    def finish(self) -> Bound:
        """The bound graph.

        Raises:
          ModelError: an output is constant.
        """
        outputs = {}
        for name in self._model.outputs:
            if name not in self._names:
                raise ModelError(f"output {name!r} does not depend on any input. Choose another.")
            outputs[name] = self._names[name]
        graph = self._builder.graph(self._inputs, outputs.values())
        return Bound(graph, self._arrays, outputs)
