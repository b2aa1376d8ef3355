"""Gather by integer indices (embeddings): rows of x along an axis. Saved: the indices."""

import numpy as np

from .movement import copy_of
from .registry import Adding, Op, onnx_rule, register
from .softmax import split_at
from .strides import contiguous


def _sizes(values, attrs) -> dict[str, int]:
    parts = split_at(values["x"].shape, attrs["axis"])
    sizes = {"outer": parts["outer"], "axis": parts["n"], "inner": parts["inner"]}
    return sizes | {"count": values["idx"].size}


def _every(values, attrs) -> dict[str, int]:
    """No index is one of padding, whose gradient is left out."""
    return _sizes(values, attrs) | {"padding": -1}


# y = x taken at idx along attrs['axis']; dx (+)= rows of dy added where they came from.
register(Op("gather", "x idx -> y", _sizes, cost=0, gradient="dy idx"))
register(Adding("gather_bwd", "dy idx -> dx", _every, cost=1, rounds=True))


@onnx_rule("Gather", weights=(0,))
def gather(context, node) -> None:
    x = context.value(node, 0)
    axis = node.axis(node.attrs.get("axis", 0), len(x.shape))
    index = context.const(node, 1)
    if index is None:
        indices = context.value(node, 1)
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        context.emit(node, "gather", [x, indices], [shape], {"axis": axis}, dtype=x.dtype)
        return
    size = x.shape[axis]
    context.room(node, index.size, weight=8)
    if index.size == 0 or index.min() < -size or index.max() >= size:
        raise node.fail(f"constant indices {index.ravel()[:5].tolist()}", f"-{size} to {size - 1}")
    if index.size == 1:  # One row: a slice.
        strides = contiguous(x.shape)
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        dims = [1 if k == axis else d for k, d in enumerate(x.shape)]
        offset = int(index.ravel()[0]) % size * strides[axis]
        copy_of(context, node, [x], shape, [(0, offset, 0, dims, strides, contiguous(dims))])
        return
    indices = context.constant(node, "indices", (index % size).astype(np.int32))
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    context.emit(node, "gather", [x, indices], [shape], {"axis": axis}, dtype=x.dtype)
