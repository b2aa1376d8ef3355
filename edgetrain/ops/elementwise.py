"""Activations and arithmetic, element by element, with numpy broadcasting.

Saved for backward: the output where the slope follows from it (the next layer keeps it anyway),
else the input. A ReLU whose output nobody else keeps saves a bit an element instead
(compiler/fusion.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..ir import Graph, Node
from .registry import Call, Op, onnx_rule, register
from .strides import broadcast, contiguous, key_of, merged, numbered


@dataclass(frozen=True, slots=True)
class Unary:
    """`saved`: what backward reads, x or y, or nothing; a, b: ONNX attributes and defaults."""

    kernel: str
    saved: str
    a: tuple[str, float] = ("", 0.0)
    b: tuple[str, float] = ("", 0.0)


UNARY: dict[str, Unary] = {
    "Relu": Unary("relu", "y"),
    "LeakyRelu": Unary("leaky_relu", "x", ("alpha", 0.01)),
    "HardSwish": Unary("hardswish", "x"),
    "HardSigmoid": Unary("hardsigmoid", "x", ("alpha", 0.2), ("beta", 0.5)),
    "Sigmoid": Unary("sigmoid", "y"),
    "Tanh": Unary("tanh", "y"),
    "Exp": Unary("exp", "y"),
    "Log": Unary("log", "x"),
    "Sqrt": Unary("sqrt", "y"),
    "Neg": Unary("neg", ""),
    "Abs": Unary("abs", "x"),
    "Reciprocal": Unary("reciprocal", "x"),
    "Erf": Unary("erf", "x"),
    "Elu": Unary("elu", "x", ("alpha", 1.0)),
    "Selu": Unary("selu", "x"),
    "Softplus": Unary("softplus", "x"),
    "Softsign": Unary("softsign", "x"),
    "Mish": Unary("mish", "x"),
    "Swish": Unary("silu", "x"),
    "Sin": Unary("sin", "x"),
    "Cos": Unary("cos", "x"),
}
_EXTRA = {
    "clip": Unary("clip", "y"),
    "gelu": Unary("gelu", "x"),
    "gelu_tanh": Unary("gelu_tanh", "x"),
}
_BY_KERNEL = {row.kernel: row for row in UNARY.values()} | _EXTRA


class UnaryOp(Op):
    """y = f(x); attrs a, b."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, y = node.inputs[0], node.outputs[0]
        args = {"x": x, "y": y, "a": node.attrs.get("a", 0.0), "b": node.attrs.get("b", 0.0)}
        return [Call(f"un_{self.name}", args | {"n": graph.values[y].size})]

    def vjp(self, grads, node: Node) -> None:
        dy, x = grads.of(node.outputs[0]), node.inputs[0]
        if not dy or not grads.needs(x):
            return
        row = _BY_KERNEL[self.name]
        saved = {"x": x, "y": node.outputs[0], "": ""}[row.saved]
        attrs = {"f": self.name, "a": node.attrs.get("a", 0.0), "b": node.attrs.get("b", 0.0)}
        grads.contribute(x, "unary_bwd", [saved, dy], attrs)

    def inplace(self, node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)


class UnaryBackward(Op):
    """dx (+)= dy * f'(saved)."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        saved, dy, *_ = node.inputs
        dx = node.outputs[0]
        args = {"dy": dy, "dx": dx, "acc": node.attrs["acc"], "n": graph.values[dx].size}
        args |= {"a": node.attrs["a"], "b": node.attrs["b"], "s": saved or dy}
        return [Call(f"un_{node.attrs['f']}_bwd", args)]

    def inplace(self, node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 1), (0, 0))


class ReluMask(Op):
    """y = relu(x), mask = one bit an element; the fusion of a ReLU whose output is not kept."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        y, mask = node.outputs
        args = {"x": node.inputs[0], "y": y, "mask": mask, "n": graph.values[y].size}
        return [Call("relu_mask", args)]

    def inplace(self, node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)


class ReluMaskBackward(Op):
    """dx (+)= dy where the bit is set."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        mask, dy, *_ = node.inputs
        args = {"mask": mask, "dy": dy, "dx": node.outputs[0], "acc": node.attrs["acc"]}
        return [Call("relu_mask_bwd", args | {"n": graph.values[dy].size})]

    def inplace(self, node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 1),)


for _name in _BY_KERNEL:
    register(UnaryOp(_name))
register(UnaryBackward("unary_bwd"))
register(ReluMask("relu_mask"))
register(ReluMaskBackward("relu_mask_bwd"))


@onnx_rule(*UNARY)
def unary(context, node) -> None:
    x = context.value(node, 0)
    row = UNARY[node.op_type]
    attrs = {
        key: float(node.attrs.get(name, default)) if name else default
        for key, (name, default) in (("a", row.a), ("b", row.b))
    }
    context.emit(node, row.kernel, [x], [x.shape], attrs)


@onnx_rule("Gelu")
def gelu(context, node) -> None:
    x = context.value(node, 0)
    op = "gelu_tanh" if node.attrs.get("approximate", "none") == "tanh" else "gelu"
    context.emit(node, op, [x], [x.shape])


@onnx_rule("Clip")
def clip(context, node) -> None:
    x = context.value(node, 0)
    low, high = node.attrs.get("min", -np.inf), node.attrs.get("max", np.inf)
    for index, key in ((1, "low"), (2, "high")):
        if context.has(node, index):
            bound = context.const(node, index)
            if bound is None:
                raise node.fail(f"a {key} bound that depends on values", "a constant")
            low, high = (bound.item(), high) if index == 1 else (low, bound.item())
    context.emit(node, "clip", [x], [x.shape], {"a": float(low), "b": float(high)})


class BinaryOp(Op):
    """y = f(a, b), broadcast."""

    def __init__(self, name: str, rules: tuple[str, str], reads: str) -> None:
        super().__init__(name)
        self.rules, self.reads = rules, reads  # gradient rules of a and b; operands they read

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        a, b, y = (graph.values[n] for n in (*node.inputs[:2], node.outputs[0]))
        strides = broadcast(a.shape, y.shape), broadcast(b.shape, y.shape)
        dims, sa, sb, _ = merged(y.shape, *strides, contiguous(y.shape))
        walk = numbered("d", dims) | numbered("as", sa) | numbered("bs", sb)
        args = {"a": a.name, "b": b.name, "y": y.name, "na": a.size, "nb": b.size}
        return [Call(f"bin_{self.name}", args | walk)]

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if not dy:
            return
        for index, rule in enumerate(self.rules):
            name = node.inputs[index]
            if not grads.needs(name):
                continue
            if rule == "id" and grads.value(name).shape == grads.value(dy).shape:
                grads.alias(name, dy)
            else:
                a, b = (n if r in self.reads else "" for n, r in zip(node.inputs, "ab", strict=True))
                a, b = (a, b) if self.reads != "x" else ("", "")
                if rule.startswith("mul"):
                    a, b = ("", b) if index == 0 else (a, "")
                grads.contribute(name, "bgrad", [dy, a, b], {"rule": rule})

    def inplace(self, node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (0, 1))


class BroadcastGrad(Op):
    """out (+)= sum over broadcast dimensions of dy * slope(a, b)."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dy = graph.values[node.inputs[0]]
        a, b = (graph.values[n] if n else None for n in node.inputs[1:3])
        out = graph.values[node.outputs[0]]
        padded = [1] * (len(dy.shape) - len(out.shape)) + list(out.shape)
        kept = [k for k, d in enumerate(padded) if d != 1 or dy.shape[k] == 1]
        summed = [k for k in range(len(padded)) if k not in kept]
        walks = [contiguous(dy.shape)]
        walks += [broadcast(v.shape, dy.shape) if v else [0] * len(padded) for v in (a, b)]
        args: dict = {"out": out.name, "dy": dy.name, "a": a and a.name, "b": b and b.name}
        for letter, axes in (("k", kept), ("r", summed)):
            # The out-strides of kept dimensions take part in merging, so that out stays contiguous.
            steps = [[w[x] for x in axes] for w in walks]
            own = [contiguous(padded)[x] for x in axes] if letter == "k" else [0] * len(axes)
            sizes = [dy.shape[x] for x in axes]
            own = own if letter == "k" else contiguous(sizes)
            dims, sy, sa, sb, _ = merged(sizes, *steps, own)
            args |= numbered(letter, dims) | numbered(f"{letter}y", sy)
            args |= numbered(f"{letter}a", sa) | numbered(f"{letter}b", sb)
        args |= {"na": a.size if a else 0, "nb": b.size if b else 0, "ndy": dy.size}
        accumulator = graph.values[graph.root(out.name)].role == "accumulator"
        args |= {"nout": out.size, "acc": node.attrs["acc"], "sr": int(accumulator)}
        args |= {"ctl": "ctl" if accumulator else None, "key": key_of(node.name)}
        return [Call(f"bgrad_{node.attrs['rule']}", args)]

    def inplace(self, node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def flops(self, node: Node, graph: Graph) -> int:
        return graph.values[node.inputs[0]].size


BINARY: dict[str, tuple[str, tuple[str, str], str]] = {
    "Add": ("add", ("id", "id"), "x"),
    "Sub": ("sub", ("id", "neg"), "x"),
    "Mul": ("mul", ("mul_a", "mul_b"), "ab"),
    "Div": ("div", ("div_a", "div_b"), "ab"),
    "Pow": ("pow", ("pow_a", "pow_b"), "ab"),
    "Min": ("min", ("min_a", "min_b"), "ab"),
    "Max": ("max", ("max_a", "max_b"), "ab"),
}
for _kernel, _rules, _reads in BINARY.values():
    register(BinaryOp(_kernel, _rules, _reads))
register(BroadcastGrad("bgrad"))


def _emitter(op_type: str) -> Callable:
    kernel = BINARY[op_type][0]

    def emit(context, node) -> None:
        names = [context.value(node, k) for k in range(len(node.inputs))]
        if len(names) == 1:
            context.bind(node, 0, names[0].name)
            return
        left = names[0]
        for k, right in enumerate(names[1:], 1):
            shape = np.broadcast_shapes(left.shape, right.shape)
            last = k == len(names) - 1
            outputs = None if last else [context.temporary(node, f"part{k}", shape)]
            dtype = "i32" if left.dtype == right.dtype == "i32" else "f32"
            (out,) = context.emit(
                node, kernel, [left, right], [shape], outputs=outputs, dtype=dtype
            )
            left = context.named(out)

    return emit


for _op_type in BINARY:
    onnx_rule(_op_type, weights=(0, 1))(_emitter(_op_type))
onnx_rule("Sum")(lambda context, node: _emitter("Add")(context, node))
