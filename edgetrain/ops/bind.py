"""Model + concrete dimensions -> ir.Graph: shapes inferred, shape arithmetic folded away.

Every dimension is an int here, so shape inference is the ops' own rules on ints, and whatever an
ONNX file computes about shapes is folded by numpy. Limits keep a malformed file cheap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import ModelError, UnsupportedOpError, UsageError
from ..ir import Builder, Graph, Value
from . import registry
from .fold import FOLDS, fold
from .model import InputSpec, Model
from .registry import OnnxNode

MAX_VALUE_NBYTES = 2**40
MAX_RANK = 8


@dataclass(frozen=True)
class Bound:
    """A forward graph and the arrays of its persistent values.

    Attributes:
      graph: outputs are the model's outputs.
      arrays: float32 or int32 arrays of parameters, buffers and constants by value name.
      outputs: ONNX output name -> value name.
    """

    graph: Graph
    arrays: Mapping[str, np.ndarray]
    outputs: Mapping[str, str]


def bind(model: Model, batch: int, dims: Mapping[str, int] | None = None) -> Bound:
    """Bind every dimension of `model`.

    Args:
      batch: samples of a microbatch; the first dimension of every input.
      dims: values of the other symbolic dimensions, by symbol.
    Raises:
      UnsupportedOpError: lists every node whose op has no rule.
      ModelError: shapes that contradict each other.
      UsageError: a symbolic dimension is not bound.
    """
    nodes = _needed(model)
    unknown = [n for n in nodes if registry.rule(n.op_type) is None and n.op_type not in FOLDS]
    if unknown:
        raise UnsupportedOpError(_unsupported(unknown, model.opset))
    context = _Context(model, batch, dims or {})
    for node in nodes:
        context.run(node)
    return context.finish()


def _needed(model: Model) -> list[OnnxNode]:
    """Nodes that an output depends on."""
    wanted, out = set(model.outputs), []
    for node in reversed(model.nodes):
        if wanted.intersection(node.outputs):
            out.append(node)
            wanted.update(node.inputs)
    return out[::-1]


def _unsupported(nodes: Sequence[OnnxNode], opset: int) -> str:
    listed = "; ".join(f"node {n.name!r}: ONNX {n.op_type} (opset {opset})" for n in nodes[:20])
    more = f"; and {len(nodes) - 20} more" if len(nodes) > 20 else ""
    return f"{listed}{more}: no edgetrain op. See 'edgetrain ops'."


class _Context:
    """The ImportContext of registry.py."""

    def __init__(self, model: Model, batch: int, dims: Mapping[str, int]) -> None:
        self.opset, self.batch = model.opset, batch
        self._model, self._dims = model, dict(dims)
        self._builder = Builder()
        self._names: dict[str, str] = {}
        self._consts: dict[str, np.ndarray] = {}
        self._arrays: dict[str, np.ndarray] = {}
        trainable = {*model.parameters, *model.buffers}
        for name, array in model.initializers.items():
            if name not in trainable:
                self._consts[name] = array
        self.baked_batch = 0
        self._inputs = [self._add_input(spec) for spec in model.inputs]

    def _add_input(self, spec: InputSpec) -> str:
        if not spec.dims:
            raise ModelError(
                f"input {spec.name!r}: it has no dimensions; expected a batch dimension."
            )
        if isinstance(spec.dims[0], int) and spec.dims[0] != self.batch:
            self.baked_batch = spec.dims[0]
        elif isinstance(spec.dims[0], str):
            self._dims.setdefault(spec.dims[0], self.batch)
        shape = [self.batch]
        for axis, dim in enumerate(spec.dims[1:], 1):
            if isinstance(dim, int):
                shape.append(dim)
            elif dim in self._dims:
                shape.append(self._dims[dim])
            else:
                label = dim or f"{spec.name}.{axis}"
                if label not in self._dims:
                    raise UsageError(
                        f"input {spec.name!r}: dimension {axis} ({label!r}) is not bound; give its "
                        f"size with --dim {label}=SIZE."
                    )
                shape.append(self._dims[label])
        dtype = "f32" if spec.dtype == "float" else "i32"
        self._names[spec.name] = self._builder.value(spec.name, shape, dtype, "input")
        return self._names[spec.name]

    # What rules ask for.

    def has(self, node: OnnxNode, index: int) -> bool:
        """Whether the optional input is there."""
        return index < len(node.inputs) and bool(node.inputs[index])

    def const(self, node: OnnxNode, index: int) -> np.ndarray | None:
        """The input as an array where it is known now, else None."""
        return self._consts.get(node.inputs[index]) if self.has(node, index) else None

    def ints(self, node: OnnxNode, index: int, attr: str = "") -> list[int] | None:
        """A list of ints that newer opsets give as an input and older ones as an attribute."""
        if attr and attr in node.attrs:
            value = node.attrs[attr]
            return [int(v) for v in (value if isinstance(value, list | tuple) else [value])]
        if not self.has(node, index):
            return None
        array = self.const(node, index)
        if array is None:
            raise node.fail(f"input {index} depends on values", "a constant (bind it with --dim)")
        return [int(v) for v in array.ravel()]

    def value(self, node: OnnxNode, index: int) -> Value:
        """The input as an ir value; a constant is given a place in the arena."""
        if not self.has(node, index):
            raise node.fail(f"input {index} is missing", "an input")
        name = node.inputs[index]
        if name not in self._names:
            self._names[name] = self._materialise(node, name)
        return self._builder.values[self._names[name]]

    def _materialise(self, node: OnnxNode, name: str) -> str:
        model = self._model
        if name in model.initializers and name not in self._consts:
            role = "parameter" if name in model.parameters else "buffer"
            array, label = model.initializers[name].astype(np.float32), name
        elif name in self._consts:
            array, role = self._consts[name], "constant"
            label = name or f"{node.name}.constant"
            array = array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
        else:
            raise node.fail(f"input {name!r} is not defined", "an input, initializer or output")
        dtype = "f32" if array.dtype == np.float32 else "i32"
        value = self._builder.value(label, array.shape, dtype, role)
        self._arrays[value] = array
        return value

    # What rules do.

    def constant(self, node: OnnxNode, tag: str, array: np.ndarray) -> str:
        """A new constant in the arena."""
        dtype = "f32" if array.dtype == np.float32 else "i32"
        name = self._builder.value(f"{node.outputs[0]}.{tag}", array.shape, dtype, "constant")
        self._arrays[name] = array
        return name

    def named(self, name: str) -> Value:
        """The ir value of this name."""
        return self._builder.values[name]

    def temporary(self, node, tag, shape, dtype="f32", role="activation") -> str:
        """A value without an ONNX name, such as batch statistics."""
        return self._builder.value(f"{node.outputs[0]}.{tag}", shape, dtype, role)

    def emit(self, node, op, inputs, shapes, attrs=None, *, outputs=None, dtype="f32", role=None):
        """Append an ir node; `shapes` one per output.

        Args:
          outputs: ONNX names that the outputs stand for; default the node's. An existing ir value
            (from `temporary`) may be given instead.
        """
        outputs = list(node.outputs[: len(shapes)] if outputs is None else outputs)
        names = []
        for name, shape in zip(outputs, shapes, strict=True):
            if name in self._builder.values and name not in self._names:
                names.append(name)
                continue
            self._check(node, shape)
            ir_name = self._builder.value(name, shape, dtype, role or "activation")
            self._names[name] = ir_name
            names.append(ir_name)
        inputs = [v.name if isinstance(v, Value) else v for v in inputs]
        self._builder.node(op, inputs, names, attrs, name=node.name, origin=node.name)
        return names

    def bind(self, node: OnnxNode, index: int, name: str) -> None:
        """Let output `index` be an existing ir value."""
        self._names[node.outputs[index]] = name

    def view(self, node: OnnxNode, name: str, shape: Sequence[int]) -> str:
        """Output 0 is `name` in another shape, the same bytes."""
        source = self._builder.values[name]
        if int(np.prod(shape, dtype=object)) != source.size:
            raise node.fail(
                f"input of shape {list(source.shape)} and new shape {list(shape)}",
                f"{source.size} elements",
            )
        out = self._builder.value(node.outputs[0], shape, source.dtype, source.role, name)
        self._builder.node("view", [name], [out], name=node.name, origin=node.name)
        self._names[node.outputs[0]] = out
        return out

    def reshaped(self, node: OnnxNode, source: Value, shape: Sequence[int]) -> str:
        """A view without an ONNX name."""
        tag = f"{node.outputs[0]}.view"
        out = self._builder.value(tag, shape, source.dtype, source.role, source.name)
        self._builder.node("view", [source.name], [out], origin=node.name)
        return out

    def fold(self, node: OnnxNode, index: int, array: np.ndarray) -> None:
        """Output `index` is a known constant."""
        self._consts[node.outputs[index]] = np.asarray(array)

    def _check(self, node: OnnxNode, shape: Sequence[int]) -> None:
        size = 4
        for dim in shape:
            size *= int(dim)
        if any(d < 1 for d in shape) or size > MAX_VALUE_NBYTES or len(shape) > MAX_RANK:
            raise node.fail(
                f"an output of shape {list(map(int, shape))}",
                f"positive dimensions, at most {MAX_RANK} of them and {MAX_VALUE_NBYTES} bytes",
            )

    def run(self, node: OnnxNode) -> None:
        """Fold the node or apply its rule."""
        if node.op_type == "Shape":
            value = self._consts.get(node.inputs[0])
            shape = self.value(node, 0).shape if value is None else value.shape
            part = shape[node.attrs.get("start", 0) : node.attrs.get("end", len(shape))]
            return self.fold(node, 0, np.array(part, np.int64))
        known = [self._consts.get(name) if name else None for name in node.inputs]
        complete = all(c is not None or not n for c, n in zip(known, node.inputs, strict=True))
        if complete and node.op_type in FOLDS:
            for k, array in enumerate(fold(node, known)):
                self.fold(node, k, array)
            return None
        rule = registry.rule(node.op_type)
        if rule is None:
            raise UnsupportedOpError(_unsupported([node], self.opset))
        try:
            return rule(self, node)
        except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError) as error:
            raise node.fail(f"attributes or shapes that do not fit ({error!r})", "a valid node") from error

    def finish(self) -> Bound:
        """The graph; outputs that turned out constant are an error."""
        outputs = {}
        for name in self._model.outputs:
            if name not in self._names:
                raise ModelError(f"output {name!r} does not depend on any input.")
            outputs[name] = self._names[name]
        graph = self._builder.graph(self._inputs, outputs.values())
        return Bound(graph, self._arrays, outputs)
