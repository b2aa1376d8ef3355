"""Comparisons, logic, Where, Trilu and casts. Saved: for Where, the mask (one byte per element).

A mask has no gradient; a constant one is stored in the arena as bytes.
"""

from typing import Any

import numpy as np

from ..ir import Node, Value
from . import samples
from .composed import Nodes
from .elementwise import broadcasting, elements
from .folding import elementwise
from .onnx_ops import Fold, Use, onnx_rule
from .registry import Op, register
from .strides import contiguous, prod
from .structure import Structure


class Where(Op):
    """y = a where mask, else b, all three broadcast."""

    structure = Structure.BROADCAST

    def vjp(self, grads, node: Node) -> None:
        dy, mask = grads.of(node.outputs[0]), node.inputs[0]
        if not dy:
            return
        shape = grads.value(dy).shape
        for name, want in zip(node.inputs[1:], (1, 0), strict=True):
            if not grads.needs(name):
                continue
            if grads.value(name).shape == shape:
                grads.contribute(name, "mask_keep", [mask, dy], {"want": want})
            else:
                part = grads.builder.value(f"{name}.kept", shape, "f32", "gradient")
                grads.emit("mask_keep", [mask, dy], [part], {"want": want, "acc": 0})
                grads.contribute(name, "bgrad", [part, "", ""], {"rule": "id"})


COMPARISONS = {
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Equal": "equal",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
}
for _name in COMPARISONS.values():  # y (u8) = relation of a and b, broadcast
    register(
        Op(
            _name, "a b -> y", broadcasting, kernel=f"cmp_{_name}", gradient="",
            samples=samples.apart, structure=Structure.BROADCAST,
        )
    )  # fmt: skip
# y (u8) = whether x is nonzero; negated if attrs['want'] is 0.
_SAME: dict[str, Any] = {"samples": samples.apart, "structure": Structure.SAME}
register(Op("truth", "x -> y", elements, gradient="", **_SAME))
register(Where("where", "mask a b -> y", broadcasting, samples=samples.apart))
# dx (+)= dy if the mask is attrs['want']; may overwrite dy.
register(Op("mask_keep", "mask dy -> dx", broadcasting, in_place=((0, 1),)))


_ORDER: dict[str, Any] = {"settings": (0, 1), "ordered": True}


@onnx_rule("Less", **_ORDER, fold=elementwise(np.less))
@onnx_rule("LessOrEqual", **_ORDER, fold=elementwise(np.less_equal))
@onnx_rule("Greater", **_ORDER, fold=elementwise(np.greater))
@onnx_rule("GreaterOrEqual", **_ORDER, fold=elementwise(np.greater_equal))
@onnx_rule("Equal", settings=(0, 1), fold=elementwise(np.equal))
@onnx_rule("And", settings=(0, 1), fold=elementwise(np.logical_and))
@onnx_rule("Or", settings=(0, 1), fold=elementwise(np.logical_or))
@onnx_rule("Xor", settings=(0, 1), fold=elementwise(np.logical_xor))
def compare(context, node) -> None:
    a, b = context.value(node, 0), context.value(node, 1)
    shape = np.broadcast_shapes(a.shape, b.shape)
    context.emit(node, COMPARISONS[node.op_type], [a, b], [shape], dtype="u8")


@onnx_rule("Not", fold=elementwise(np.logical_not))
def logical_not(context, node) -> None:
    x = context.value(node, 0)
    context.emit(node, "truth", [x], [x.shape], {"want": 0}, dtype="u8")


@onnx_rule("Where", weights=(1, 2), use=Use.FORMULA, fold=elementwise(np.where, 4))
def where(context, node) -> None:
    known = context.const(node, 0)
    if known is not None and known.size and known.all() == known.any():
        _one_side(context, node, 1 if known.all() else 2, known.shape)
        return
    mask, a, b = (context.value(node, k) for k in range(3))
    shape = np.broadcast_shapes(mask.shape, a.shape, b.shape)
    dtype = "f32" if "f32" in (a.dtype, b.dtype) else a.dtype
    context.emit(node, "where", [mask, a, b], [shape], dtype=dtype)


def _one_side(context, node, index: int, mask_shape) -> None:
    """With a uniform mask, only one operand is broadcast."""
    a, b = context.value(node, 1), context.value(node, 2)
    chosen = (a, b)[index - 1]
    shape = np.broadcast_shapes(mask_shape, a.shape, b.shape)
    if chosen.shape == shape:
        context.bind(node, 0, chosen.name)
    else:
        context.emit(node, "expand", [chosen], [shape], dtype=chosen.dtype)


def _matrices(context, node, rank: int) -> tuple[range, str]:
    return range(rank - 2, rank), "an axis of the matrices"


def _triangle(node, inputs):
    k = int(inputs[1].ravel()[0]) if len(inputs) > 1 and inputs[1] is not None else 0
    return np.triu(inputs[0], k) if node.attrs.get("upper", 1) else np.tril(inputs[0], k)


@onnx_rule("Trilu", joined=_matrices, fold=Fold(_triangle))
def trilu(context, node) -> None:
    """x above or below a diagonal, else zero."""
    x = context.value(node, 0)
    if len(x.shape) < 2:
        raise node.fail(f"input has shape {list(x.shape)}", "at least two dimensions")
    k = (context.ints(node, 1) or [0])[0]
    part = np.triu if node.attrs.get("upper", 1) else np.tril
    context.room(node, prod(x.shape[-2:]), weight=4)
    kept = part(np.ones(x.shape[-2:], np.bool_), max(-(2**31), min(k, 2**31)))
    mask = context.constant(node, "mask", kept)
    kind = np.float32 if x.dtype == "f32" else np.int32
    zero = context.constant(node, "zero", np.zeros((), kind))
    context.emit(node, "where", [mask, x, zero], [x.shape], dtype=x.dtype)


# ONNX element types: floats of 16 to 64 bits, booleans, integers of 8 to 64 bits.
_FLOATS, _BOOL, _INTEGERS = (1, 10, 11, 16), 9, (2, 3, 4, 5, 6, 7, 12, 13)
# Integers of fewer than 32 bits -> their bits, negative if signed.
_NARROW = {2: 8, 3: -8, 4: 16, 5: -16}


# ONNX element type -> numpy type; bfloat16 is widened to float32.
_NUMPY = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64,
    9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64, 16: np.float32,
}  # fmt: skip


def _numpy_type(node) -> type:
    code = int(node.attrs["to"])
    if code not in _NUMPY:
        raise node.fail(f"element type {code}", "a numeric or boolean type")
    return _NUMPY[code]


_CAST = Fold(
    lambda node, inputs: inputs[0].astype(_numpy_type(node)),
    itemsize=lambda node, inputs: np.dtype(_numpy_type(node)).itemsize,
)
_CAST_LIKE = Fold(lambda node, inputs: inputs[0].astype(inputs[1].dtype))


@onnx_rule("Cast", converts=True, fold=_CAST)
@onnx_rule("CastLike", converts=True, settings=(1,), fold=_CAST_LIKE)
def cast(context, node) -> None:
    """Types are of three kinds: floats, integers and booleans. Integers keep the bits that fit."""
    x = context.value(node, 0)
    wanted = _wanted(context, node)
    bits = _NARROW.get(int(node.attrs.get("to", 0)), 0)
    if bits and x.dtype == "i32":
        _wrapped(context, node, bits)
    elif wanted == x.dtype:
        context.bind(node, 0, x.name)
    elif wanted == "u8":
        context.emit(node, "truth", [x], [x.shape], {"want": 1}, dtype="u8")
    else:
        strides = contiguous(x.shape)
        moves = ((0, 0, 0, x.shape, strides, strides),)
        context.emit(node, "copy", [x], [x.shape], {"moves": moves}, dtype=wanted)


def _wrapped(context, node, bits: int) -> None:
    """Integers modulo 2 ** |bits|; bits < 0: signed."""
    nodes, size = Nodes(context, node), np.int64(2 ** abs(bits))
    modulus, half = nodes.constant("modulus", size), nodes.constant("half", size // 2)
    result = nodes.add("rest" if bits < 0 else "", "Mod", [node.inputs[0], modulus])
    if bits < 0:
        result = nodes.add("shifted", "Add", [result, half])
        result = nodes.add("again", "Mod", [result, modulus])
        nodes.add("", "Sub", [result, half])
    nodes.run()


def _wanted(context, node) -> str:
    if node.op_type == "Cast":
        code = int(node.attrs["to"])
        if code not in (*_FLOATS, _BOOL, *_INTEGERS):
            raise node.fail(f"element type {code}", "floats, integers or booleans")
        return "f32" if code in _FLOATS else "u8" if code == _BOOL else "i32"
    known = context.const(node, 1)
    if known is None:
        like: Value = context.value(node, 1)
        return like.dtype
    return {"f": "f32", "b": "u8"}.get(known.dtype.kind, "i32")
