"""TopK, ArgMax and ArgMin along an axis. Saved: the indices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from . import samples
from .integers import as_floats, as_integers
from .onnx_ops import Fold, axis_of, onnx_rule
from .registry import Adding, Op, register
from .softmax import split_at


def _chosen(values, attrs) -> dict[str, int]:
    """x as outer x n x inner around the axis, and k."""
    return split_at(values["x"].shape, attrs["axis"]) | {"k": values["idx"].shape[attrs["axis"]]}


def _searched(values, attrs) -> int:
    return values["x"].size * values["idx"].shape[attrs["axis"]]


# idx (i32) = indices of the largest x along attrs['axis'], in order; y = x there; dx (+)= dy.
register(Op("topk", "x -> idx", _chosen, cost=_searched, gradient="", samples=samples.ranked))
_PICK: dict[str, Any] = {"gradient": "dy idx", "samples": samples.picked, "chooses": True}
register(Op("pick", "x idx -> y", _chosen, **_PICK))
register(Adding("pick_bwd", "dy idx -> dx", _chosen, cost=1))


@onnx_rule("TopK", joined=axis_of(-1, "sorted over"))
def topk(context, node) -> None:
    x = context.value(node, 0)
    axis = node.axis(node.attrs.get("axis", -1), len(x.shape))
    (count,) = context.ints(node, 1, "k")
    if not 1 <= count <= x.shape[axis]:
        raise node.fail(f"k {count} for {x.shape[axis]} elements", f"1 to {x.shape[axis]}")
    reverse = int(not node.attrs.get("largest", 1))
    floats = as_floats(context, node, x)
    shape = _with(x.shape, axis, count)
    index = _ranked(context, node, floats, shape, axis, reverse, 1)
    if context.reads(node, 1):
        context.bind(node, 1, index)
    if not context.reads(node, 0):
        return
    if x.dtype == "f32":
        context.emit(node, "pick", [floats, index], [shape], {"axis": axis})
        return
    out = context.temporary(node, "picked", shape, role="statistic")
    context.emit(node, "pick", [floats, index], [shape], {"axis": axis}, outputs=[out])
    as_integers(context, node, context.named(out), 0)


def _extreme(function: Callable) -> Fold:
    def run(node, inputs):
        axis, data = node.attrs.get("axis", 0), inputs[0]
        last = bool(node.attrs.get("select_last_index", 0))
        result = function(np.flip(data, axis) if last else data, axis=axis)
        result = data.shape[axis] - 1 - result if last else result
        return np.expand_dims(result, axis) if node.attrs.get("keepdims", 1) else result

    return Fold(run, work=8)


@onnx_rule("ArgMax", fold=_extreme(np.argmax))
@onnx_rule("ArgMin", fold=_extreme(np.argmin))
def arg(context, node) -> None:
    x = context.value(node, 0)
    axis = node.axis(node.attrs.get("axis", 0), len(x.shape))
    first = int(not node.attrs.get("select_last_index", 0))
    reverse = int(node.op_type == "ArgMin")
    shape = _with(x.shape, axis, 1)
    index = _ranked(context, node, as_floats(context, node, x), shape, axis, reverse, first)
    kept = shape if node.attrs.get("keepdims", 1) else (*shape[:axis], *shape[axis + 1 :])
    context.view(node, index, kept)


def _ranked(context, node, x, shape, axis: int, reverse: int, first: int) -> str:
    index = context.temporary(node, "index", shape, "i32")
    attrs = {"axis": axis, "reverse": reverse, "first": first}
    context.emit(node, "topk", [x], [shape], attrs, outputs=[index], dtype="i32")
    return index


def _with(shape, axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])
