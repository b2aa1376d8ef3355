"""Rounding to 8-bit values with straight-through gradients (fake quantisation in torch).

The importer (importer/quantised.py) gives QuantizeLinear its scales and zero points as attributes.
Its output is the values that the integers represent, so DequantizeLinear only passes it on.
"""

from collections.abc import Sequence

import numpy as np

from .onnx_ops import OnnxNode, onnx_op, onnx_rule


def moves_integers(op_type: str) -> bool:
    """Whether an ONNX op only moves the integers of its first input."""
    op = onnx_op(op_type)
    return op.picks or op.moves and not op.variadic


@onnx_rule("QuantizeLinear", converts=True, settings=(1, 2))
def quantize_linear(context, node) -> None:
    """One kernel if scale and zero point are scalars, otherwise also a division and a product."""
    known = context.const(node, 0)
    scale, offset = _grid(node, context.value(node, 0).shape if known is None else known.shape)
    if known is not None:
        context.fold(node, 0, _rounded(known.astype(np.float32), scale, offset))
        return
    x = context.value(node, 0)
    if scale.size == 1:
        attrs = {"a": float(scale.item()), "b": float(offset.item())}
        context.emit(node, "fake_quantize", [x], [x.shape], attrs)
    else:
        _by_channel(context, node, x, scale.astype(np.float32), offset.astype(np.float32))


def is_rounded(node: OnnxNode, array: np.ndarray) -> bool:
    """Whether a QuantizeLinear leaves this input as it is."""
    return np.array_equal(_rounded(array.astype(np.float32), *_grid(node, array.shape)), array)


def _grid(node: OnnxNode, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Scale, and offset of the zero point from the least integer, broadcastable to `shape`.

    Raises:
      ModelError: they have another shape.
    """
    scale, zero = (np.asarray(node.attrs[key]) for key in ("scale", "zero_point"))
    offset = zero.astype(np.int64) - np.iinfo(zero.dtype).min
    if scale.size > 1 and scale.ndim != len(shape):
        axis = node.axis(node.attrs.get("axis", 1), len(shape))
        wanted = [-1 if k == axis else 1 for k in range(len(shape))]
        scale, offset = scale.reshape(wanted), offset.reshape(wanted)
    if scale.size > 1 and any(d not in (1, n) for d, n in zip(scale.shape, shape, strict=True)):
        raise node.fail(
            f"scales have shape {list(scale.shape)}, the input {list(shape)}", "one per channel"
        )
    return scale, offset


def _rounded(array: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    scale, offset = scale.astype(np.float32), offset.astype(np.float32)
    return (np.clip(np.rint(array / scale) + offset, 0, 255) - offset) * scale


def _by_channel(context, node, x, scale: np.ndarray, offset: np.ndarray) -> None:
    steps = context.constant(node, "scale", scale)
    made = x.name

    def then(op: str, *operands: str, last: bool = False, **attrs: float) -> None:
        nonlocal made
        outputs = None if last else [context.temporary(node, op, x.shape)]
        (made,) = context.emit(node, op, [made, *operands], [x.shape], attrs, outputs=outputs)

    then("div", steps)
    if (offset == offset.flat[0]).all():
        then("fake_quantize", a=1.0, b=float(offset.flat[0]))
    else:
        offsets = context.constant(node, "offset", offset)
        then("round_through")
        then("add", offsets)
        then("fake_quantize", a=1.0, b=0.0)
        then("sub", offsets)
    then("mul", steps, last=True)


@onnx_rule("DequantizeLinear", converts=True, settings=(1, 2))
def dequantize_linear(context, node) -> None:
    """Its input is already a float, unless it is a constant with a scale: (q - zero) * scale."""
    known = context.const(node, 0)
    if known is not None:
        context.fold(node, 0, _floats(context, node, known) if len(node.inputs) > 1 else known)
        return
    value = context.value(node, 0)
    if value.dtype != "f32" or len(node.inputs) > 1:
        raise node.fail(f"integers {node.inputs[0]!r}", "the output of a QuantizeLinear")
    context.bind(node, 0, value.name)


def _floats(context, node: OnnxNode, integers: np.ndarray) -> np.ndarray:
    """The values that constant integers represent."""
    scale = context.const(node, 1)
    zero = context.const(node, 2) if context.has(node, 2) else np.zeros(1, np.int64)
    if integers.dtype.kind not in "iu" or scale is None or zero is None:
        raise node.fail(
            f"{node.inputs[0]!r} of type {integers.dtype}, or a scale or zero point that is not "
            "constant",
            "integers and constants",
        )
    axis, block = int(node.attrs.get("axis", 1)), int(node.attrs.get("block_size", 0))
    fitted = [spread(array, integers.shape, axis, block) for array in (scale, zero)]
    if fitted[0] is None or fitted[1] is None:
        raise node.fail(
            f"a scale of shape {list(scale.shape)} for integers of shape {list(integers.shape)}",
            f"one, or one per index of axis {axis}",
        )
    steps = integers.astype(np.int64) - fitted[1].astype(np.int64)
    return (steps.astype(np.float32) * fitted[0]).astype(np.float32)


def spread(array: np.ndarray, shape: Sequence[int], axis: int, block: int) -> np.ndarray | None:
    """Scales or zero points, reshaped to broadcast to a tensor; None if they do not fit."""
    if array.size == 1:
        return array.reshape([1] * len(shape))
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    if block:
        wide = np.repeat(array, block, axis) if array.ndim == len(shape) else array
        wide = np.take(wide, range(min(shape[axis], wide.shape[axis])), axis)
        return wide if wide.shape == tuple(shape) else None
    if array.size != shape[axis]:
        return None
    return array.reshape([-1 if k == axis else 1 for k in range(len(shape))])


def in_integers(nodes: Sequence[OnnxNode], name: str, array: np.ndarray) -> np.ndarray:
    """Convert a value computed as floats back to the integers in the file.

    Args:
      nodes: nodes of the model.
      name, array: the computed value.
    """
    makers = {out: node for node in nodes for out in node.outputs}
    node = makers.get(name)
    while node is not None and moves_integers(node.op_type):
        node = makers.get(node.inputs[0])
    if node is None or node.op_type != "QuantizeLinear":
        return array
    scale, zero = (np.asarray(node.attrs[key]) for key in ("scale", "zero_point"))
    if scale.size > 1 and scale.ndim != array.ndim:
        axis = node.axis(node.attrs.get("axis", 1), array.ndim)
        wanted = [-1 if k == axis else 1 for k in range(array.ndim)]
        scale, zero = scale.reshape(wanted), zero.reshape(wanted)
    elif scale.size == 1:
        scale, zero = scale.reshape(()), zero.reshape(())
    limits = np.iinfo(zero.dtype)
    result = np.rint(array / scale.astype(np.float32)) + zero.astype(np.float32)
    return np.clip(result, limits.min, limits.max).astype(zero.dtype)
