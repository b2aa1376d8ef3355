"""Forms of `Fold` that several families of ops use."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .onnx_ops import Arrays, Fold, OnnxNode
from .strides import prod


def axes_of(node: OnnxNode, inputs: Arrays) -> list[int] | None:
    """Axes in the second input, in older opsets in an attribute; None if not given."""
    if len(inputs) > 1 and inputs[1] is not None:
        return [int(a) for a in np.asarray(inputs[1]).ravel()]
    axes = node.attrs.get("axes")
    return None if axes is None else [int(a) for a in axes]


def sizes_of(node: OnnxNode, sizes: Any) -> tuple[int, ...]:
    """An array or a sequence of sizes as a shape.

    Raises:
      ModelError: a size is negative.
    """
    shape = tuple(int(d) for d in (sizes.ravel() if isinstance(sizes, np.ndarray) else sizes))
    if any(d < 0 for d in shape):
        raise node.fail(f"a constant of shape {list(shape)}", "sizes of at least 0")
    return shape


def nothing(node: OnnxNode, inputs: Arrays) -> int:
    """For results that are no larger than what is read."""
    return 0


def broadcast_size(node: OnnxNode, inputs: Arrays) -> int:
    """Elements of the shape that all inputs are broadcast to."""
    return prod(np.broadcast_shapes(*(x.shape for x in inputs if x is not None)))


def elementwise(function: Callable, work: int = 1) -> Fold:
    """A numpy function of one array or of several that broadcast."""
    return Fold(lambda node, inputs: np.asarray(function(*inputs)), broadcast_size, work=work)


def from_left(function: Callable) -> Fold:
    """A numpy function of two numbers, applied to any number of arrays from the left."""

    def run(node: OnnxNode, inputs: Arrays) -> np.ndarray:
        result = inputs[0]
        for right in inputs[1:]:
            result = function(result, right)
        return np.asarray(result)

    return Fold(run, broadcast_size)
