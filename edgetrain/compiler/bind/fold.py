"""Folds constant nodes with numpy: shape arithmetic, indices, masks and tables.

The size of a result is known in advance, so an allowance (allowance.py) can reject it.
"""

from collections.abc import Callable

import numpy as np

from ...ops.allowance import Allowance, check_list
from ...ops.onnx_ops import OnnxNode
from ...ops.strides import prod
from . import fold_masks

_DTYPES = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64,
    9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64, 16: np.float32,
}  # fmt: skip


def numpy_dtype(code: int, node: OnnxNode) -> type:
    """Numpy type of an ONNX element type; bfloat16 is widened to float32."""
    if code not in _DTYPES:
        raise node.fail(f"element type {code}", "a numeric or boolean type")
    return _DTYPES[code]


def _axes(node: OnnxNode, inputs, index: int = 1) -> list[int] | None:
    if len(inputs) > index and inputs[index] is not None:
        return [int(a) for a in np.asarray(inputs[index]).ravel()]
    axes = node.attrs.get("axes")
    return None if axes is None else [int(a) for a in axes]


def _unsqueeze(node, inputs):
    axes = _axes(node, inputs) or []
    rank = inputs[0].ndim + len(axes)
    return np.expand_dims(inputs[0], tuple(a % rank for a in axes))


def _squeeze(node, inputs):
    axes = _axes(node, inputs)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


def _slice(node, inputs):
    data = inputs[0]
    if "starts" in node.attrs:
        starts, ends = node.attrs["starts"], node.attrs["ends"]
        axes, steps = node.attrs.get("axes"), None
    else:
        starts, ends = inputs[1].tolist(), inputs[2].tolist()
        axes = inputs[3].tolist() if len(inputs) > 3 and inputs[3] is not None else None
        steps = inputs[4].tolist() if len(inputs) > 4 and inputs[4] is not None else None
    where = [slice(None)] * data.ndim
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = int(axes[k]) if axes is not None else k
        step = int(steps[k]) if steps is not None else 1
        bound = None if step < 0 and end < -data.shape[axis] else int(end)
        where[axis] = slice(int(start), bound, step)
    return data[tuple(where)]


def _reshape(node, inputs):
    shape = [int(d) for d in inputs[1].ravel()]
    if not node.attrs.get("allowzero", 0):
        shape = [inputs[0].shape[k] if d == 0 else d for k, d in enumerate(shape)]
    return inputs[0].reshape(shape)


def _divide(node, inputs):
    a, b = inputs
    if not np.issubdtype(np.result_type(a, b), np.integer):
        return a / b
    if np.any(b == 0):
        raise node.fail("an integer division by 0", "a nonzero divisor")
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.result_type(a, b))


def _mod(node, inputs):
    a, b = inputs
    if np.any(b == 0):
        raise node.fail("a modulus of 0", "a nonzero modulus")
    return np.fmod(a, b) if node.attrs.get("fmod", 0) else np.mod(a, b)


def _range(node, inputs):
    start, limit, step = (x.ravel()[0] for x in inputs)
    return np.arange(start, limit, step, dtype=inputs[0].dtype)


def _constant_of_shape(node, inputs):
    value = _filler(node)
    return np.full(_sizes(node, inputs[0]), value.ravel()[0], value.dtype)


def _filler(node) -> np.ndarray:
    return np.asarray(node.attrs.get("value", np.zeros(1, np.float32)))


def _expand(node, inputs):
    return np.broadcast_to(inputs[0], _expanded(node, inputs)).copy()


def _tile(node, inputs):
    return np.tile(inputs[0], inputs[1].astype(np.int64))


def _gather(node, inputs):
    data, index = inputs
    axis = node.attrs.get("axis", 0)
    size = data.shape[axis]
    if index.size and (index.min() < -size or index.max() >= size):
        raise node.fail(f"indices from {index.min()} to {index.max()}", f"[{-size}, {size})")
    return np.take(data, index.astype(np.int64), axis=axis)


def _mean(array, axis, keepdims):
    """The mean; of integers, rounded towards zero."""
    result = np.mean(array, axis=axis, keepdims=keepdims)
    return result if array.dtype.kind == "f" else np.trunc(result).astype(array.dtype)


def _reduce(function):
    def run(node, inputs):
        axes = _axes(node, inputs)
        if not axes and node.attrs.get("noop_with_empty_axes", 0):
            return inputs[0]
        keep = bool(node.attrs.get("keepdims", 1))
        return np.asarray(function(inputs[0], axis=tuple(axes) if axes else None, keepdims=keep))

    return run


def _trilu(node, inputs):
    k = int(inputs[1].ravel()[0]) if len(inputs) > 1 and inputs[1] is not None else 0
    return np.triu(inputs[0], k) if node.attrs.get("upper", 1) else np.tril(inputs[0], k)


def _split(node, inputs):
    axis = node.attrs.get("axis", 0)
    sizes = node.attrs.get("split")
    if len(inputs) > 1 and inputs[1] is not None:
        sizes = inputs[1].tolist()
    size, parts = inputs[0].shape[axis], len(node.outputs)
    if sizes is None:
        step = -(-size // parts)
        sizes = [step] * (size // step) + ([size % step] if size % step else [])
    return np.split(inputs[0], np.cumsum(sizes)[:-1].astype(int), axis=axis)


def _cast(node, inputs):
    return inputs[0].astype(numpy_dtype(int(node.attrs["to"]), node))


def _concat(node, inputs):
    return np.concatenate(inputs, axis=node.attrs["axis"])


def _arg_extreme(function):
    def run(node, inputs):
        axis, data = node.attrs.get("axis", 0), inputs[0]
        last = bool(node.attrs.get("select_last_index", 0))
        result = function(np.flip(data, axis) if last else data, axis=axis)
        result = data.shape[axis] - 1 - result if last else result
        return np.expand_dims(result, axis) if node.attrs.get("keepdims", 1) else result

    return run


def _cumsum(node, inputs):
    data, axis = inputs[0], int(inputs[1].ravel()[0])
    turned = np.flip(data, axis) if node.attrs.get("reverse", 0) else data
    out = np.cumsum(turned, axis, dtype=data.dtype)
    out = out - turned if node.attrs.get("exclusive", 0) else out
    return np.flip(out, axis) if node.attrs.get("reverse", 0) else out


def _size(node, inputs):
    return np.array(inputs[0].size, np.int64)


def _plain(function) -> Callable:
    return lambda node, inputs: np.asarray(function(*inputs))


FOLDS: dict[str, Callable] = {
    "Identity": lambda node, inputs: inputs[0],
    "Cast": _cast,
    "CastLike": lambda node, inputs: inputs[0].astype(inputs[1].dtype),
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Reshape": _reshape,
    "Flatten": lambda n, x: x[0].reshape(int(np.prod(x[0].shape[: n.attrs.get("axis", 1)])), -1),
    "Transpose": lambda node, inputs: np.transpose(inputs[0], node.attrs.get("perm")),
    "Concat": _concat,
    "Gather": _gather,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Trilu": _trilu,
    "Where": _plain(np.where),
    "Add": _plain(np.add),
    "Sub": _plain(np.subtract),
    "Mul": _plain(np.multiply),
    "Div": _divide,
    "Mod": _mod,
    "Pow": lambda node, inputs: np.power(inputs[0], inputs[1]).astype(inputs[0].dtype),
    "Min": lambda node, inputs: np.asarray(np.minimum.reduce(np.broadcast_arrays(*inputs))),
    "Max": lambda node, inputs: np.asarray(np.maximum.reduce(np.broadcast_arrays(*inputs))),
    "Neg": _plain(np.negative),
    "Abs": _plain(np.abs),
    "Sqrt": _plain(np.sqrt),
    "Floor": _plain(np.floor),
    "Ceil": _plain(np.ceil),
    "Equal": _plain(np.equal),
    "Less": _plain(np.less),
    "LessOrEqual": _plain(np.less_equal),
    "Greater": _plain(np.greater),
    "GreaterOrEqual": _plain(np.greater_equal),
    "Not": _plain(np.logical_not),
    "And": _plain(np.logical_and),
    "Or": _plain(np.logical_or),
    "ReduceSum": _reduce(np.sum),
    "ReduceProd": _reduce(np.prod),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceMean": _reduce(_mean),
    "ArgMax": _arg_extreme(np.argmax),
    "ArgMin": _arg_extreme(np.argmin),
    "CumSum": _cumsum,
    "Size": _size,
    "Sum": lambda node, inputs: sum(inputs[1:], start=inputs[0]),
    "Xor": _plain(np.logical_xor),
    "Sign": _plain(np.sign),
    "Reciprocal": _plain(np.reciprocal),
    "Round": _plain(np.rint),
    "Sin": _plain(np.sin),
    "Cos": _plain(np.cos),
    "NonZero": lambda node, inputs: np.array(np.nonzero(inputs[0]), np.int64),
    "Log": _plain(np.log),
    "Exp": _plain(np.exp),
    "IsNaN": _plain(np.isnan),
    "GatherElements": fold_masks.gather_elements,
    "GatherND": fold_masks.gather_nd,
    "ScatterND": fold_masks.scatter_nd,
    "MatMul": fold_masks.matmul,
}


# Number of elements in a fold's result, for ops where this is not the size of the largest input.


def _sizes(node, shape) -> tuple[int, ...]:
    result = tuple(int(d) for d in (shape.ravel() if isinstance(shape, np.ndarray) else shape))
    if any(d < 0 for d in result):
        raise node.fail(f"a constant of shape {list(result)}", "sizes of at least 0")
    return result


def _expanded(node, inputs) -> tuple[int, ...]:
    return _sizes(node, np.broadcast_shapes(inputs[0].shape, _sizes(node, inputs[1])))


def _tiled(node, inputs) -> int:
    return inputs[0].size * prod(_sizes(node, inputs[1]))


def _counted(node, inputs) -> int:
    start, limit, step = (x.ravel()[0] for x in inputs)
    if step == 0:
        raise node.fail(f"Range({start}, {limit}, {step})", "a nonzero step")
    count = (float(limit) - float(start)) / float(step)
    if not count < 2**62:
        raise node.fail(f"Range({start}, {limit}, {step})", "a finite number of steps")
    return max(0, int(count) + 1)


def _gathered(node, inputs) -> int:
    data, index = inputs
    return index.size * (data.size // max(1, data.shape[node.attrs.get("axis", 0)]))


def _broadcast(node, inputs) -> int:
    return prod(np.broadcast_shapes(*(x.shape for x in inputs if x is not None)))


def _copied(node, inputs) -> int:
    return 0 if inputs[0].flags.c_contiguous else inputs[0].size


_VIEWS = ("Identity", "Unsqueeze", "Squeeze", "Slice", "Transpose", "Split", "Size")
_ELEMENTS: dict[str, Callable] = {
    "Reshape": _copied,
    "Flatten": _copied,
    "Expand": lambda node, inputs: prod(_expanded(node, inputs)),
    "Tile": _tiled,
    "Range": _counted,
    "ConstantOfShape": lambda node, inputs: prod(_sizes(node, inputs[0])),
    "Gather": _gathered,
    "GatherElements": lambda node, inputs: inputs[1].size,
    "GatherND": fold_masks.gathered_nd,
    "MatMul": fold_masks.multiplied,
    "Concat": lambda node, inputs: sum(x.size for x in inputs),
    "NonZero": lambda node, inputs: inputs[0].size * max(1, inputs[0].ndim),
    **{name: lambda node, inputs: 0 for name in _VIEWS},
    **{
        name: _broadcast
        for name in (
            "Where", "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Sum", "Equal",
            "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor",
        )
    },
}  # fmt: skip
_REDUCED = ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean")
# Cost per element; default: 1.
_WEIGHTS = {
    "Pow": 32, "Mod": 32, "Div": 32, "Sin": 16, "Cos": 16, "Exp": 8, "Log": 16, "NonZero": 16,
    "GatherND": 16, "GatherElements": 16, "ScatterND": 16, "CumSum": 8, "ArgMax": 8, "ArgMin": 8,
    "Gather": 8, "Where": 4,
}  # fmt: skip
# Op -> index from which its inputs are lists of sizes, axes or positions.
_LISTS = {
    "Reshape": 1,
    "Expand": 1,
    "Tile": 1,
    "Slice": 1,
    "Unsqueeze": 1,
    "Squeeze": 1,
    "Split": 1,
    "ConstantOfShape": 0,
    **dict.fromkeys(_REDUCED, 1),
}


def _itemsize(node: OnnxNode, inputs: list[np.ndarray | None]) -> int:
    """Upper bound of the bytes per element of the result."""
    if node.op_type == "Cast":
        return np.dtype(numpy_dtype(int(node.attrs["to"]), node)).itemsize
    if node.op_type == "ConstantOfShape":
        return _filler(node).dtype.itemsize
    return 8 if node.op_type == "NonZero" else max(x.itemsize for x in inputs if x is not None)


def fold(
    node: OnnxNode, inputs: list[np.ndarray | None], allowance: Allowance, varies: bool = False
) -> list[np.ndarray]:
    """Outputs of a node with constant inputs.

    Args:
      varies: whether inputs may depend on the batch.
    Raises:
      ModelError: invalid inputs, or the result exceeds the allowance.
    """
    op = node.op_type
    try:
        for index, array in enumerate(inputs):
            if array is not None and index >= _LISTS.get(op, len(inputs)):
                check_list(node, index, array)
        read = 0 if op in _VIEWS else max((x.size for x in inputs if x is not None), default=0)
        made = _ELEMENTS[op](node, inputs) if op in _ELEMENTS else read
        if op in _REDUCED:
            made = 0
        if made or read:
            allowance.room(node, made * _itemsize(node, inputs), varies)
            allowance.spend(node, max(made, read), _WEIGHTS.get(op, 1))
        with np.errstate(all="ignore"):
            out = FOLDS[op](node, inputs)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise node.fail(f"constant inputs that do not fit ({error})", "valid inputs") from error
    return [np.asarray(part) for part in out] if isinstance(out, list) else [np.asarray(out)]


def own_nbytes(array: np.ndarray, inputs: list[np.ndarray | None]) -> int:
    """Bytes of an output that it does not share with an input."""
    if any(x is not None and np.may_share_memory(array, x) for x in inputs):
        return 0
    return array.nbytes
