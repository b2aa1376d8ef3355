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
    """The integers of a value as floats; floats stay as they are."""
    if value.dtype == "f32":
        return value
    return _converted(context, node, value, "f32")


def as_integers(context, node, value: Value, index: int | None = None) -> Value:
    """Floats as integers, those between them rounded towards zero.

    Args:
      index: the output of the node that they are; None: they have no ONNX name.
    """
    return _converted(context, node, value, "i32", index)


def number(context, node, array) -> Value:
    """A constant of integers, in floats."""
    return context.named(context.constant(node, "number", np.asarray(array, np.float32)))


def computed(context, node, op: str, inputs: Sequence[Value], shape, attrs=None) -> Value:
    """What an op makes of integers in floats."""
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
