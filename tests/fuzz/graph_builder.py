"""Builds a random graph: values of known shapes, from which later nodes pick their operands.

Axis 0 of every value is the batch, and no node mixes samples. The onnx package infers shapes,
node by node.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

BATCH = 6  # rarely the size of another axis, and it has four divisors
CLASSES = 4  # number of classes of the labels
# Ops without a gradient.
_FLAT = {
    "ArgMax", "ArgMin", "Bernoulli", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "IsInf",
    "IsNaN", "Less", "LessOrEqual", "RandomNormalLike", "RandomUniformLike", "Round", "Sign",
}  # fmt: skip
_KINDS = {"f": TensorProto.FLOAT, "b": TensorProto.BOOL, "i": TensorProto.INT64}
_LETTERS = {code: kind for kind, code in _KINDS.items()} | {TensorProto.INT32: "i"}


class Unfit(Exception):
    """A step that does not fit this graph; it is skipped."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph; `kind`: f float, b bool, i integer."""

    name: str
    shape: tuple[int, ...]
    kind: str = "f"


@dataclass
class Growing:
    """The nodes so far, and the values that new nodes may read.

    Attributes:
      pool: values whose first axis is the batch.
      weights: parameters by name; a later node may share one.
      learned: values whose gradient reaches a weight.
      fed: values that depend on an input.
      is_whole: constants have the batch's size, so that a minibatch cannot be split.
    """

    draw: np.random.Generator
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    weights: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    pool: list[Value] = field(default_factory=list)
    known: dict[str, onnx.TypeProto] = field(default_factory=dict)
    learned: set[str] = field(default_factory=set)
    fed: set[str] = field(default_factory=set)
    is_whole: bool = False

    # Choices.

    def one(self, options: Sequence) -> Any:
        return options[int(self.draw.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.draw.random() < share)

    def size(self, most: int = 5) -> int:
        """Draw the size of an axis; often 1."""
        return 1 if self.chance(0.2) else int(self.draw.integers(1, most + 1))

    def axis(self, value: Value) -> int:
        """Draw an axis other than the batch, counted from the front or the back."""
        axis = int(self.draw.integers(1, len(value.shape)))
        return axis - len(value.shape) if self.chance(0.5) else axis

    def axes(self, value: Value) -> list[int]:
        """Draw one or more axes, without the batch."""
        count = int(self.draw.integers(1, len(value.shape)))
        found = sorted(self.draw.permutation(np.arange(1, len(value.shape)))[:count].tolist())
        return [a - len(value.shape) if self.chance(0.3) else a for a in found]

    # Values.

    def name(self, what: str = "v") -> str:
        return f"{what}{len(self.nodes)}_{len(self.arrays)}"

    def input(self, shape: Sequence[int], kind: str = "f") -> Value:
        value = Value(f"x{len(self.inputs)}", (BATCH, *shape), kind)
        self.inputs.append(value)
        self.fed.add(value.name)
        if kind == "f":
            self.pool.append(value)
        self._know(value.name, _KINDS[kind], value.shape)
        return value

    @property
    def labels(self) -> Value | None:
        """The input of class labels, if the graph has one."""
        return next((v for v in self.inputs if v.kind == "i"), None)

    def constant(self, array: Any, dtype: Any = np.int64) -> str:
        return self._keep(self.name("c"), np.array(array, dtype))

    def parameter(self, shape: Sequence[int], low: float | None = None) -> str:
        """Return a new weight or an existing one of this shape; with `low`, values are above it."""
        shape = tuple(int(size) for size in shape)
        same = [n for n in self.weights if self.arrays[n].shape == shape and low is None]
        if same and self.chance(0.3):
            return self.one(same)
        spread = 1 / math.sqrt(max(1, math.prod(shape[:1])))
        array = self.draw.standard_normal(shape) * max(spread, 0.3)
        array = array if low is None else low + np.abs(array)
        name = self._keep(self.name("w"), array.astype(np.float32))
        if low is None or self.chance(0.7):
            self.weights.append(name)
            self.learned.add(name)
        return name

    def buffer(self, shape: Sequence[int], low: float | None = None) -> str:
        array = self.draw.standard_normal(shape) * 0.3
        array = array if low is None else low + np.abs(array)
        name = self._keep(self.name("s"), array.astype(np.float32))
        self.buffers.append(name)
        return name

    def pick(self, kind: str = "f", ranks: Sequence[int] = (2, 3, 4, 5)) -> Value:
        """Pick a value of one of these ranks from the pool, or make one."""
        fit = [v for v in self.pool if v.kind == kind and len(v.shape) in ranks]
        if kind == "b" and not fit:
            x = self.pick()
            return self.node("Greater", [x.name, self.constant(0.0, np.float32)])
        if fit and not (kind == "f" and self.chance(0.1)):
            return fit[-1] if self.chance(0.5) else self.one(fit)
        return self.shaped([self.size() for _ in range(self.one(ranks) - 1)])

    def shaped(self, shape: Sequence[int]) -> Value:
        """Make a value [batch, *shape] through a product with a weight."""
        x = self.one([v for v in self.pool if v.kind == "f"])
        flat = x if len(x.shape) == 2 else self.node("Flatten", [x.name], axis=1)
        many = math.prod(shape)
        w = self.parameter([flat.shape[1], many])
        made = self.node("MatMul", [flat.name, w])
        if len(shape) == 1:
            return made
        return self.node("Reshape", [made.name, self.constant([-1, *shape])])

    def zeroed(self, value: Value) -> Value:
        """Set random elements and whole rows of the value to exactly zero."""
        mask = self.draw.random((1, *value.shape[1:])) < 0.5
        mask &= self.draw.random((1, value.shape[1], *[1] * (len(value.shape) - 2))) < 0.6
        return self.node("Mul", [value.name, self.constant(mask, np.float32)])

    def within(self, value: Value, domain: str) -> Value:
        """Map the value into the domain where an op is smooth and of moderate size."""
        if domain == "any":
            return value
        op, then, number = {
            "positive": ("Abs", "Add", 0.3), "above 1": ("Abs", "Add", 1.2),
            "unit": ("Tanh", "Mul", 0.9), "bounded": ("Tanh", "Mul", 1.3),
        }[domain]  # fmt: skip
        made = self.node(op, [value.name])
        return self.node(then, [made.name, self.constant(number, np.float32)])

    # Nodes.

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attrs: Any) -> Value:
        return self.several(op, inputs, outputs, **attrs)[0]

    def several(
        self, op: str, inputs: Sequence[str], outputs: int, *, domain: str = "", **attrs: Any
    ) -> list[Value]:
        """Add a node; its outputs join the pool if their first axis is the batch.

        Raises:
          Unfit: the op does not accept these shapes.
        """
        names = [f"{self.name()}_{k}" for k in range(outputs)]
        made = helper.make_node(op, list(inputs), names, f"n{len(self.nodes)}", domain, **attrs)
        found = self._infer(made)
        self.nodes.append(made)
        captured = {n for a in made.attribute for node in a.g.node for n in node.input}
        reads = {*made.input, *captured}
        if reads & self.fed and op not in ("RandomNormalLike", "RandomUniformLike"):
            self.fed.update(names)
        values = []
        for name in names:
            self.known[name] = found[name]
            kind = found[name].tensor_type
            shape = tuple(d.dim_value for d in kind.shape.dim)
            value = Value(name, shape, _LETTERS.get(kind.elem_type, "?"))
            values.append(value)
            if value.kind == "f" and op not in _FLAT and reads & self.learned:
                self.learned.add(name)
            small = math.prod(shape) <= 4096 and 2 <= len(shape) <= 6 and 0 not in shape
            if small and shape[0] == BATCH and value.kind != "?":
                self.pool.append(value)
        return values

    def _infer(self, made: onnx.NodeProto) -> Mapping[str, onnx.TypeProto]:
        schema = onnx.defs.get_schema(made.op_type, self.opset, made.domain)
        reads = [name for name in made.input if name]
        data = {n: numpy_helper.from_array(self.arrays[n], n) for n in reads if n in self.arrays}
        try:
            found = shape_inference.infer_node_outputs(
                schema, made, {n: self.known[n] for n in reads}, data,
                opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10,
            )  # fmt: skip
        except (shape_inference.InferenceError, onnx.checker.ValidationError) as error:
            raise Unfit(str(error)) from error
        for name in made.output:
            if name not in found or not found[name].tensor_type.HasField("shape"):
                raise Unfit(f"{made.op_type}: no shape")
            if any(not d.HasField("dim_value") for d in found[name].tensor_type.shape.dim):
                raise Unfit(f"{made.op_type}: an open shape")
        return found

    def _keep(self, name: str, array: np.ndarray) -> str:
        self.arrays[name] = array
        self._know(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        return name

    def _know(self, name: str, code: int, shape: Sequence[int]) -> None:
        self.known[name] = helper.make_tensor_type_proto(code, shape)
