"""Range, ConstantOfShape and NonZero: how large their outputs are depends on their inputs, which
must be constants."""

import numpy as np

from .folding import sizes_of
from .onnx_ops import Fold, declare
from .strides import prod


def _range(node, inputs):
    start, limit, step = (x.ravel()[0] for x in inputs)
    return np.arange(start, limit, step, dtype=inputs[0].dtype)


def _count(node, inputs) -> int:
    start, limit, step = (x.ravel()[0] for x in inputs)
    if step == 0:
        raise node.fail(f"Range({start}, {limit}, {step})", "a nonzero step")
    count = (float(limit) - float(start)) / float(step)
    if not count < 2**62:
        raise node.fail(f"Range({start}, {limit}, {step})", "a finite number of steps")
    return max(0, int(count) + 1)


def _value(node) -> np.ndarray:
    return np.asarray(node.attrs.get("value", np.zeros(1, np.float32)))


def _filled(node, inputs):
    value = _value(node)
    return np.full(sizes_of(node, inputs[0]), value.ravel()[0], value.dtype)


def _places(node, inputs):
    return np.array(np.nonzero(inputs[0]), np.int64)


declare("Range", fold=Fold(_range, _count))
declare(
    "ConstantOfShape",
    fold=Fold(
        _filled,
        lambda node, inputs: prod(sizes_of(node, inputs[0])),
        lists=0,
        itemsize=lambda node, inputs: _value(node).itemsize,
    ),
)
declare(
    "NonZero",
    fold=Fold(
        _places,
        lambda node, inputs: inputs[0].size * max(1, inputs[0].ndim),
        work=16,
        itemsize=lambda node, inputs: 8,
    ),
)
