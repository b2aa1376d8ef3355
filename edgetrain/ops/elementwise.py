"""Elementwise activations and arithmetic, with numpy broadcasting.

Saved for backward: the output if the slope follows from it (the next layer saves it anyway),
otherwise the input. A ReLU whose output is not saved elsewhere saves one bit per element instead
(compiler/passes/fusion.py).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import Graph, Node, Value
from ..kernels.elementwise.binary import GRADIENTS
from ..kernels.elementwise.formulas import ROWS
from ..kernels.elementwise.pair_formulas import PAIRS
from ..kernels.elementwise.rows import table
from . import samples
from .folding import broadcast_size, elementwise, from_left
from .integers import as_floats, as_integers, computed
from .onnx_ops import Fold, Use, declare, onnx_rule
from .registry import Call, Op, register
from .sides import Sides, sides_of
from .strides import broadcast, contiguous, merged, prod
from .structure import Structure

# ONNX op type -> function.
UNARY = table("onnx", ROWS.values())


class UnaryOp(Op):
    """y = f(x); attrs a, b."""

    structure = Structure.SAME

    def vjp(self, grads, node: Node) -> None:
        dy, x = grads.of(node.outputs[0]), node.inputs[0]
        row = ROWS[self.name]
        if not dy or not grads.needs(x) or row.vjp is None:
            return
        saved = {"x": x, "y": node.outputs[0], "": ""}[row.saved]
        grads.contribute(x, "unary_bwd", [saved, dy], _slope(node.attrs) | {"f": self.name})


class UnaryBackward(Op):
    """dx (+)= dy * f'(saved)."""

    def may_round(self, node: Node) -> bool:
        """A slope is known to be bounded only for parameters with the signs of their defaults."""
        row = ROWS[node.attrs["f"]]
        usual = ((node.attrs["a"], row.a[1]), (node.attrs["b"], row.b[1]))
        signed = (value * default for value, default in usual if math.isfinite(default))
        return row.bounded and all(product >= 0 for product in signed)

    def sides(self, node: Node) -> Sides | None:
        return sides_of(ROWS[node.attrs["f"]], node.attrs["a"], node.attrs["b"])

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        saved, dy, *_ = node.inputs
        own = replace(node, inputs=(saved or dy, dy))
        return [self.call(own, graph, f"un_{node.attrs['f']}_bwd")]


def _slope(attrs) -> dict[str, Any]:
    return {key: attrs.get(key, 0.0) for key in ("a", "b")}


def elements(values, attrs) -> dict[str, int]:
    """n, the elements of y."""
    return {"n": values["y"].size}


def _unary(values, attrs) -> dict[str, Any]:
    return elements(values, attrs) | _slope(attrs)


_SAMPLES_OF_ONE = {"neg": samples.negated}
for _name in ROWS:
    _rule = _SAMPLES_OF_ONE.get(_name, samples.apart)
    register(
        UnaryOp(_name, "x -> y", _unary, kernel=f"un_{_name}", in_place=((0, 0),), samples=_rule)
    )
register(UnaryBackward("unary_bwd", "s dy -> dx", elements, in_place=((0, 1), (0, 0))))
# y = relu(x) and one bit per element, for a ReLU whose output is not saved; dx (+)= dy where
# the bit is set.
register(Op("relu_mask", "x -> y mask", elements, in_place=((0, 0),)))
register(Op("relu_mask_bwd", "mask dy -> dx", elements, in_place=((0, 1),)))


_WAVES = ("Sin", "Cos")


# Functions that files use on constants: sizes, positions and masks.
_FOLDS = {
    "Neg": elementwise(np.negative),
    "Abs": elementwise(np.abs),
    "Sqrt": elementwise(np.sqrt),
    "Floor": elementwise(np.floor),
    "Ceil": elementwise(np.ceil),
    "Round": elementwise(np.rint),
    "Sign": elementwise(np.sign),
    "Reciprocal": elementwise(np.reciprocal),
    "Sin": elementwise(np.sin, 16),
    "Cos": elementwise(np.cos, 16),
    "Log": elementwise(np.log, 16),
    "Exp": elementwise(np.exp, 8),
}


def unary(context, node) -> None:
    """The rule of every function of one number."""
    row = UNARY[node.op_type]
    node.check_form(1, [name for name, _ in (row.a, row.b) if name])
    x = context.value(node, 0)
    attrs = {
        key: float(node.attrs.get(name, default)) if name else default
        for key, (name, default) in (("a", row.a), ("b", row.b))
    }
    context.emit(node, row.name, [x], [x.shape], attrs)


for _name in UNARY:
    _periodic = _name in _WAVES
    declare(_name, rule=unary, integers=(0,), periodic=_periodic, fold=_FOLDS.get(_name))


# Factors of the Selu kernel.
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


def scalar(context, node, tag: str, value: float) -> str:
    """A constant with one element."""
    return context.constant(node, tag, np.array(value, np.float32))


@onnx_rule("Selu")
def selu(context, node) -> None:
    x = context.value(node, 0)
    alpha, gamma = (
        float(node.attrs.get(k, v)) for k, v in zip(("alpha", "gamma"), _SELU, strict=True)
    )
    if np.allclose((alpha, gamma), _SELU, rtol=1e-6):
        context.emit(node, "selu", [x], [x.shape])
        return
    part = context.temporary(node, "elu", x.shape)
    context.emit(node, "elu", [x], [x.shape], {"a": alpha}, outputs=[part])
    context.emit(node, "mul", [part, scalar(context, node, "gamma", gamma)], [x.shape])


@onnx_rule("Swish")
def swish(context, node) -> None:
    x, alpha = context.value(node, 0), float(node.attrs.get("alpha", 1.0))
    if alpha == 1.0:
        context.emit(node, "silu", [x], [x.shape])
        return
    scaled, gate = (context.temporary(node, tag, x.shape) for tag in ("scaled", "gate"))
    factor = scalar(context, node, "alpha", alpha)
    context.emit(node, "mul", [x, factor], [x.shape], outputs=[scaled])
    context.emit(node, "sigmoid", [scaled], [x.shape], outputs=[gate])
    context.emit(node, "mul", [x, gate], [x.shape])


@onnx_rule("Gelu")
def gelu(context, node) -> None:
    x = context.value(node, 0)
    op = "gelu_tanh" if node.attrs.get("approximate", "none") == "tanh" else "gelu"
    context.emit(node, op, [x], [x.shape])


# Torch operators by their slope at the bounds: 0, or 1 like torch.clamp.
_FLAT_AT_BOUNDS = ("relu6", "hardtanh", "hardswish", "hardsigmoid")
_CLAMPS = ("clamp", "clamp_min", "clamp_max", "clip")
_RELU6 = (0.0, 6.0)
_BEYOND = {"Max": "less", "Min": "greater"}


@onnx_rule("Clip", settings=(1, 2))
def clip(context, node) -> None:
    x = context.value(node, 0)
    bounds, varying = [], []
    for index, (key, default) in enumerate((("min", -np.inf), ("max", np.inf)), 1):
        known = context.const(node, index)
        if known is None and context.has(node, index):
            varying.append(index)
        bounds.append(float(node.attrs.get(key, default) if known is None else known.item()))
    attrs = dict(zip("ab", bounds, strict=True))
    if varying and x.dtype == "f32":
        given = [k for k in (1, 2) if context.has(node, k)]
        operands = [x, *(context.value(node, k) for k in given)]
        _limited(context, node, operands, [("less", "greater")[k - 1] for k in given])
    elif varying:
        raise node.fail(f"bound {node.inputs[varying[0]]!r} is not constant", "a constant")
    elif x.dtype != "f32":
        x = computed(context, node, "clip", [as_floats(context, node, x)], x.shape, attrs)
        as_integers(context, node, x, 0)
    else:
        flat = node.function in _FLAT_AT_BOUNDS or not node.function and tuple(bounds) == _RELU6
        context.emit(node, "clip" if flat else "clamp", [x], [x.shape], attrs)


def _limited(context, node, operands: Sequence[Value], tests: Sequence[str]) -> None:
    """Min or Max of x and bounds with clamp gradients: at a bound, x gets the whole gradient."""
    x = operands[0]
    for k, (bound, test) in enumerate(zip(operands[1:], tests, strict=True), 2):
        shape = np.broadcast_shapes(x.shape, bound.shape)
        beyond = context.temporary(node, f"{test}.mask", shape, "u8")
        context.emit(node, test, [x, bound], [shape], outputs=[beyond])
        last = k == len(operands)
        outputs = None if last else [context.temporary(node, f"{test}.part", shape)]
        (out,) = context.emit(node, "where", [beyond, bound, x], [shape], outputs=outputs)
        x = context.named(out)


def broadcasting(values, attrs) -> dict[str, Any]:
    """Kernel operands for broadcasting mask, a and b to y: sizes, strides, element counts."""
    shape = values["y"].shape
    operands = {name[0]: values[name].shape for name in ("mask", "a", "b") if name in values}
    steps = [broadcast(own, shape) for own in operands.values()]
    dims, *strides, _ = merged(shape, *steps, contiguous(shape))
    counts = {f"n{name}": prod(own) for name, own in operands.items()}
    return {"d": dims} | counts | dict(zip((f"s{name}" for name in operands), strides, strict=True))


_SAMPLES = {
    "add": samples.added,
    "sub": samples.subtracted,
    "mul": samples.multiplied,
    "div": samples.divided,
    "mod": samples.remainder,
}


class BinaryOp(Op):
    """y = f(a, b), broadcast."""

    structure = Structure.BROADCAST

    def __init__(self, name: str, rules: tuple[str, str]) -> None:
        super().__init__(
            name,
            "a b -> y",
            broadcasting,
            kernel=f"bin_{name}",
            in_place=((0, 0), (0, 1)),
            samples=_SAMPLES.get(name, samples.apart),
        )
        self.rules = rules  # gradient rules of a and b

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
                pairs = zip(node.inputs, "ab", strict=True)
                a, b = (n if r in GRADIENTS[rule] else "" for n, r in pairs)
                grads.contribute(name, "bgrad", [dy, a, b], {"rule": rule})


class BroadcastGrad(Op):
    """out (+)= sum over broadcast dimensions of dy * slope(a, b)."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        return [self.call(node, graph, f"bgrad_{node.attrs['rule']}")]


def _summed(values, attrs) -> dict[str, Any]:
    """Sizes and strides of the dimensions that dy shares with out (k) and of the summed ones
    (r)."""
    dy, out = values["dy"], values["out"]
    padded = [1] * (len(dy.shape) - len(out.shape)) + list(out.shape)
    kept = [k for k, d in enumerate(padded) if d != 1 or dy.shape[k] == 1]
    summed = [k for k in range(len(padded)) if k not in kept]
    walks, args = [contiguous(dy.shape)], {"ndy": dy.size, "nout": out.size}
    for name in "ab":
        value = values.get(name)
        walks.append(broadcast(value.shape, dy.shape) if value else [0] * len(padded))
        args[f"n{name}"] = value.size if value else 0
    for letter, axes in (("k", kept), ("r", summed)):
        # Merging includes the output strides of kept dimensions, so out stays contiguous.
        steps = [[w[x] for x in axes] for w in walks]
        sizes = [dy.shape[x] for x in axes]
        own = [contiguous(padded)[x] for x in axes] if letter == "k" else contiguous(sizes)
        dims, sy, sa, sb, _ = merged(sizes, *steps, own)
        args |= {letter: dims, f"{letter}y": sy, f"{letter}a": sa, f"{letter}b": sb}
    return args


BINARY: dict[str, tuple[str, tuple[str, str]]] = {
    "Add": ("add", ("id", "id")),
    "Sub": ("sub", ("id", "neg")),
    "Mul": ("mul", ("mul_a", "mul_b")),
    "Div": ("div", ("div_a", "div_b")),
    "Pow": ("pow", ("pow_a", "pow_b")),
    "Min": ("min", ("min_a", "min_b")),
    "Max": ("max", ("min_b", "min_a")),
    "Mod": ("mod", ("id", "mod_b")),
}
_OWN = table("onnx", PAIRS.values())
assert not BINARY.keys() & _OWN, f"pair_formulas.py: {BINARY.keys() & _OWN} have rules already"
BINARY |= {onnx: (row.name, row.rules) for onnx, row in _OWN.items()}
_FMOD = ("fmod", ("id", "fmod_b"))
for _kernel, _rules in (*BINARY.values(), _FMOD):
    register(BinaryOp(_kernel, _rules))
for _pair in PAIRS.values():
    if not _pair.onnx:
        register(BinaryOp(_pair.name, _pair.rules))
register(BroadcastGrad("bgrad", "dy a b -> out", _summed, cost=1, in_place=((0, 0),), rounds=True))


def _variadic(context, node, kernel: str) -> None:
    """Fold the operands from the left, as floats; the result is an integer if the first operand is
    one."""
    names = [context.value(node, k) for k in range(len(node.inputs))]
    if len(names) == 1:
        context.bind(node, 0, names[0].name)
        return
    if node.op_type in _BEYOND and node.function in _CLAMPS and names[0].dtype == "f32":
        _limited(context, node, names, [_BEYOND[node.op_type]] * (len(names) - 1))
        return
    whole = names[0].dtype != "f32"
    names = [as_floats(context, node, value) for value in names]
    left = names[0]
    for k, right in enumerate(names[1:], 1):
        shape = np.broadcast_shapes(left.shape, right.shape)
        if whole:
            left = computed(context, node, kernel, [left, right], shape)
            continue
        last = k == len(names) - 1
        outputs = None if last else [context.temporary(node, f"part{k}", shape)]
        (out,) = context.emit(node, kernel, [left, right], [shape], outputs=outputs)
        left = context.named(out)
    if whole:
        as_integers(context, node, left, 0)


# Operands that may be learnt or constants, and numbers of a formula.
TERMS: dict[str, Any] = {"weights": (0, 1), "use": Use.TERMS}
_FORMULA: dict[str, Any] = {"weights": (0, 1), "use": Use.FORMULA}


def _divided(node, inputs):
    a, b = inputs
    if not np.issubdtype(np.result_type(a, b), np.integer):
        return a / b
    if np.any(b == 0):
        raise node.fail("an integer division by 0", "a nonzero divisor")
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.result_type(a, b))


_BIAS, _SCALE = ({0: name, 1: name} for name in ("bias", "weight"))
_EXTREME: dict[str, Any] = _FORMULA | {"variadic": True, "ordered": True}


@onnx_rule("Add", **TERMS, adds=True, names=_BIAS, fold=elementwise(np.add))
@onnx_rule("Mul", **TERMS, scales=True, names=_SCALE, fold=elementwise(np.multiply))
@onnx_rule("Sub", **_FORMULA, fold=elementwise(np.subtract))
@onnx_rule("Div", **_FORMULA, fold=Fold(_divided, broadcast_size, work=32))
@onnx_rule("Min", **_EXTREME, fold=from_left(np.minimum))
@onnx_rule("Max", **_EXTREME, fold=from_left(np.maximum))
@onnx_rule("PRelu", weights=(0, 1), names={1: "weight"})
@onnx_rule(*(_OWN.keys() - {"PRelu"}), **TERMS)
def binary(context, node) -> None:
    node.check_form(2)
    _variadic(context, node, BINARY[node.op_type][0])


@onnx_rule("Sum", **TERMS, adds=True, variadic=True, fold=from_left(np.add))
def sum_(context, node) -> None:
    _variadic(context, node, "add")


@onnx_rule("Mean", **TERMS, variadic=True)
def mean(context, node) -> None:
    names = [context.value(node, k) for k in range(len(node.inputs))]
    total, shape = names[0], names[0].shape
    for k, value in enumerate(names[1:], 1):
        shape = np.broadcast_shapes(shape, value.shape)
        part = context.temporary(node, f"part{k}", shape)
        context.emit(node, "add", [total, value], [shape], outputs=[part])
        total = context.named(part)
    count = scalar(context, node, "count", 1.0 / len(names))
    context.emit(node, "mul", [total, count], [shape])


def _rest(node, inputs):
    a, b = inputs
    if np.any(b == 0):
        raise node.fail("a modulus of 0", "a nonzero modulus")
    return np.fmod(a, b) if node.attrs.get("fmod", 0) else np.mod(a, b)


@onnx_rule("Mod", settings=(1,), fold=Fold(_rest, broadcast_size, work=32))
def mod(context, node) -> None:
    _variadic(context, node, "fmod" if node.attrs.get("fmod", 0) else "mod")


def _raised(node, inputs):
    return np.power(*inputs).astype(inputs[0].dtype)


@onnx_rule("Pow", **_FORMULA, fold=Fold(_raised, broadcast_size, work=32))
def power(context, node) -> None:
    """Squares, roots and reciprocals are exact; other exponents are accurate to one unit."""
    x, known = context.value(node, 0), context.const(node, 1)
    exponent = None if known is None or known.size != 1 else float(known.ravel()[0])
    if exponent is None or len(known.shape) > len(x.shape) or x.dtype != "f32":
        _variadic(context, node, "pow")
    elif exponent == 1.0:
        context.bind(node, 0, x.name)
    elif exponent == 2.0:
        context.emit(node, "mul", [x, x], [x.shape])
    elif exponent in (0.5, -1.0):
        context.emit(node, "sqrt" if exponent > 0 else "reciprocal", [x], [x.shape])
    else:
        _variadic(context, node, "pow")
