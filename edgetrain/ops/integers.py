"""Integer arithmetic in a model, such as positions: computed in float32.

Kernels compute with floats, which represent integers up to 2^24 exactly; intermediate values are
float32 regardless of the precision.
"""

from collections.abc import Sequence

import numpy as np

from ..ir import Value
from .strides import contiguous

EXACT = 2**24


def as_floats(context, node, value: Value) -> Value:
    """Convert integers to floats; floats are returned unchanged."""
    if value.dtype == "f32":
        return value
    return _converted(context, node, value, "f32")


def as_integers(context, node, value: Value, index: int | None = None) -> Value:
    """Convert floats to integers, rounding towards zero.

    Args:
      index: index of the node's output; None: a temporary without ONNX name.
    """
    return _converted(context, node, value, "i32", index)


def in_kind_of(context, node, value: Value, like: Value) -> None:
    """Make floats the node's first output: booleans if `like` holds booleans, else integers."""
    if like.dtype == "u8":
        context.emit(node, "truth", [value], [value.shape], {"want": 1}, dtype="u8")
    else:
        as_integers(context, node, value, 0)


def number(context, node, array) -> Value:
    """A constant of integers, stored as floats."""
    return context.named(context.constant(node, "number", np.asarray(array, np.float32)))


def computed(context, node, op: str, inputs: Sequence[Value], shape, attrs=None) -> Value:
    """Emit an op on integers stored as floats."""
    out = context.temporary(node, op, shape, "f32", "statistic")
    context.emit(node, op, inputs, [shape], attrs, outputs=[out])
    return context.named(out)


def _converted(context, node, value: Value, dtype: str, index: int | None = None) -> Value:
    strides = contiguous(value.shape)
    attrs = {"moves": ((0, 0, 0, value.shape, strides, strides),), "fill": None}
    if index is None:
        role = "statistic" if dtype == "f32" else "activation"
        outputs = [context.temporary(node, "cast", value.shape, dtype, role)]
    else:
        outputs = [node.outputs[index]]
    (out,) = context.emit(node, "copy", [value], [value.shape], attrs, outputs=outputs, dtype=dtype)
    return context.named(out)
