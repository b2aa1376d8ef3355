"""ONNX DFT and STFT: products with constant matrices of cosines and sines.

Complex numbers are pairs, real part first, along the last axis; a real tensor has one number there.
"""

from collections.abc import Collection

import numpy as np

from .composed import Nodes
from .onnx_ops import OnnxNode, onnx_rule


def _angles(bins: int, length: int, terms: int) -> np.ndarray:
    """2 pi k n / length for k < bins and n < terms, float64 [bins, terms]."""
    turns = np.outer(np.arange(bins), np.arange(terms)) % length
    return turns * (2 * np.pi / length)


def _matrix(size: int, parts: int, bins: int, length: int, inverse: bool) -> np.ndarray:
    """The matrix of a transform of `size` numbers, float32 [size * parts, bins * 2].

    Rows are [number, part], columns [bin, part]. The input is cut or padded with zeros to `length`.
    """
    used = min(size, length)
    angles = _angles(bins, length, used).T
    real, imaginary = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    rows = np.zeros((size, parts, bins, 2))
    rows[:used, 0, :, 0], rows[:used, 0, :, 1] = real, imaginary
    if parts == 2:
        rows[:used, 1, :, 0], rows[:used, 1, :, 1] = -imaginary, real
    scale = 1 / length if inverse else 1.0
    return (rows * scale).astype(np.float32).reshape(size * parts, bins * 2)


def _half_inverse(size: int, length: int) -> np.ndarray:
    """The matrix of the inverse of a one-sided transform, float32 [size * 2, length]; the result is
    real."""
    used = min(size, length // 2 + 1)
    angles = _angles(used, length, length)
    rows = np.zeros((size, 2, length))
    rows[:used, 0], rows[:used, 1] = np.cos(angles), -np.sin(angles)
    mirrored = [k for k in range(1, used) if 2 * k != length]  # they also represent bin length - k
    rows[mirrored] *= 2
    return (rows / length).astype(np.float32).reshape(size * 2, length)


def _parts(node: OnnxNode, shape: tuple[int, ...]) -> int:
    if len(shape) < 2 or shape[-1] not in (1, 2):
        raise node.fail(f"input of shape {list(shape)}", "1 (real) or 2 (complex) at its end")
    return shape[-1]


def _length(context, node: OnnxNode, index: int, default: int) -> int:
    known = context.ints(node, index) if context.has(node, index) else [default]
    if known is None or len(known) != 1 or known[0] < 1:
        raise node.fail(f"length {known}", "one number above 0")
    return known[0]


def _axis(context, node: OnnxNode, rank: int) -> int:
    """Axis of a DFT: an attribute up to opset 19, then an input."""
    given = context.ints(node, 2) if context.has(node, 2) else None
    default = 1 if context.opset < 20 else -2
    axis = node.axis(given[0] if given else node.attrs.get("axis", default), rank)
    if axis == rank - 1:
        raise node.fail(f"axis {axis}, which holds the parts of numbers", "another axis")
    return axis


def _over_axis(context, node: OnnxNode, rank: int) -> tuple[tuple[int, ...], str]:
    return (_axis(context, node, rank), rank - 1), "an axis of the signal"


@onnx_rule("DFT", joined=_over_axis)
def dft(context, node) -> None:
    """The discrete Fourier transform along one axis, by one matrix product."""
    x, nodes = context.value(node, 0), Nodes(context, node)
    rank, parts = len(x.shape), _parts(node, x.shape)
    axis, inverse = _axis(context, node, rank), bool(node.attrs.get("inverse", 0))
    size, half = x.shape[axis], bool(node.attrs.get("onesided", 0))
    if half and inverse != (parts == 2):
        numbers = "complex" if parts == 2 else "real"
        raise node.fail(f"onesided=1, inverse={int(inverse)} for {numbers} input", "onesided=0")
    length = _length(context, node, 1, 2 * (size - 1) if half and inverse else size)
    bins, made_parts = length // 2 + 1 if half and not inverse else length, 2 - (half and inverse)
    context.room(node, size * parts * bins * made_parts, weight=8)
    if half and inverse:
        matrix = nodes.constant("matrix", _half_inverse(size, length))
    else:
        matrix = nodes.constant("matrix", _matrix(size, parts, bins, length, inverse))
    last = rank - 2
    perm = [k for k in range(rank) if k != axis]
    perm.insert(last, axis)
    lines = [x.shape[k] for k in perm[:last]]
    source = node.inputs[0]
    if axis != last:
        source = nodes.add("moved", "Transpose", [source], perm=perm)
    row = nodes.constant("row", [*lines, size * parts])
    made = nodes.add("flat", "Reshape", [source, row])
    made = nodes.add("product", "MatMul", [made, matrix])
    shape = nodes.constant("shape", [*lines, bins, made_parts])
    made = nodes.add("" if axis == last else "pairs", "Reshape", [made, shape])
    if axis != last:
        nodes.add("", "Transpose", [made], perm=[perm.index(k) for k in range(rank)])
    nodes.run()


def _over_signal(context, node: OnnxNode, rank: int) -> tuple[Collection[int], str]:
    return range(1, rank), "an axis of the signal"


@onnx_rule("STFT", settings=(2,), joined=_over_signal)
def stft(context, node) -> None:
    """Transforms of overlapping windows [samples, frames, bins, 2], by one convolution."""
    x, nodes = context.value(node, 0), Nodes(context, node)
    parts = _parts(node, x.shape)
    if len(x.shape) != 3:
        raise node.fail(f"signal of shape {list(x.shape)}", "[samples, length, 1 or 2]")
    step, window = _length(context, node, 1, 1), None
    if context.has(node, 2):
        window = context.const(node, 2)
        if window is None or window.ndim != 1:
            raise node.fail("a window that depends on values", "a constant vector")
    length = _length(context, node, 3, x.shape[1] if window is None else len(window))
    if length > x.shape[1]:
        raise node.fail(f"frames of {length}", f"at most the signal's {x.shape[1]}")
    if window is not None and len(window) != length:
        raise node.fail(f"a window of {len(window)}", f"as many as a frame has, {length}")
    half = bool(node.attrs.get("onesided", 1))
    if half and parts == 2:
        raise node.fail("onesided=1 for a complex signal", "onesided=0")
    bins = length // 2 + 1 if half else length
    context.room(node, bins * 2 * parts * length, weight=8)
    matrix = _matrix(length, parts, bins, length, False).reshape(length, parts, bins * 2)
    if window is not None:
        matrix = matrix * window.astype(np.float32)[:, None, None]
    taps = nodes.constant("taps", np.ascontiguousarray(matrix.transpose(2, 1, 0)))
    lines = nodes.add("lines", "Transpose", [node.inputs[0]], perm=[0, 2, 1])
    made = nodes.add("frames", "Conv", [lines, taps], strides=[step], kernel_shape=[length])
    count = (x.shape[1] - length) // step + 1
    shape = nodes.constant("shape", [x.shape[0], bins, 2, count])
    made = nodes.add("pairs", "Reshape", [made, shape])
    nodes.add("", "Transpose", [made], perm=[0, 3, 1, 2])
    nodes.run()
