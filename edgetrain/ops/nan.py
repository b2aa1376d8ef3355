"""IsNaN and IsInf. IsNaN compares a value with itself, and is dropped if NaN is impossible.

torch replaces the NaN that softmax computes for a fully masked row. If the mask is a constant that
leaves something in every row, there is no NaN as long as scores are finite; otherwise the run has
diverged, and should not continue with zeros.
"""

import numpy as np

from .elementwise import scalar
from .folding import elementwise
from .onnx_ops import onnx_rule

_ENDS = {1: "positive", -1: "negative"}


@onnx_rule("IsNaN", fold=elementwise(np.isnan))
def is_nan(context, node) -> None:
    x = context.value(node, 0)
    if _is_sound_softmax(context, node, x.name):
        context.fold(node, 0, np.zeros((1,) * len(x.shape), np.bool_))
        return
    same = context.temporary(node, "same", x.shape, "u8")
    context.emit(node, "equal", [x, x], [x.shape], outputs=[same], dtype="u8")
    context.emit(node, "truth", [same], [x.shape], {"want": 0}, dtype="u8")


@onnx_rule("IsInf")
def is_inf(context, node) -> None:
    x = context.value(node, 0)
    ends = {sign: node.attrs.get(f"detect_{name}", 1) for sign, name in _ENDS.items()}
    wanted = [sign for sign, asked in ends.items() if asked]
    if not wanted:
        context.fold(node, 0, np.zeros((1,) * len(x.shape), np.bool_))
        return
    value = x
    if len(wanted) == 2:
        value = context.temporary(node, "size", x.shape)
        context.emit(node, "abs", [x], [x.shape], outputs=[value])
    end = scalar(context, node, "end", wanted[0] * np.inf)
    context.emit(node, "equal", [value, end], [x.shape], dtype="u8")


def _is_sound_softmax(context, node, name: str) -> bool:
    """Whether it is a softmax whose rows are never fully masked."""
    softmax = context.maker(name)
    if softmax is None or softmax.op != "softmax":
        return False
    scores = context.maker(softmax.inputs[0])
    if scores is None:
        return False
    axis = softmax.attrs["axis"] - len(context.named(name).shape)
    arrays = [context.array(source) for source in scores.inputs]
    if scores.op == "where" and arrays[0] is not None:
        # One side is the scores; the mask must select some of them in each row.
        sides = [side for side in (1, 2) if arrays[side] is None]
        return len(sides) == 1 and _rows(node, context, arrays[0] == (sides[0] == 1), axis)
    if scores.op == "add":
        known = [array for array in arrays if array is not None]
        return len(known) == 1 and _rows(node, context, np.isfinite(known[0]), axis)
    return scores.op in ("matmul", "mul", "div")


def _rows(node, context, left: np.ndarray, axis: int) -> bool:
    """Whether no row is fully masked."""
    context.room(node, left.size, itemsize=1)
    if left.ndim < -axis:
        return bool(left.all())
    return bool(left.any(axis=axis).all())
