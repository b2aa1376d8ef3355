"""Convolution, 1-D to 3-D; 3-D is computed with 2-D convolutions.

A window along depth only is a convolution over [depth, height * width]. Any other is a 2-D
convolution of [batch * depth, channels * window depth, height, width], whose channels are the input
slices it reads; backward adds the gradients of each slice.
"""

from .conv import optional_bias, planar, weighted, window
from .movement import copy_of
from .onnx_ops import WEIGHT_AND_BIAS, images, onnx_rule
from .strides import contiguous, permuted, prod


@onnx_rule(
    "Conv", weights=(1, 2), names=WEIGHT_AND_BIAS, width=lambda node, shape: shape[0], joined=images
)
def conv(context, node) -> None:
    x, w, groups, (kernel, strides, dilations) = weighted(context, node, 3)
    before, _, out = window(node, x.shape[2:], kernel, strides, dilations)
    bias = optional_bias(context, node, w.shape[0])
    if len(kernel) == 3:
        _volume(context, node, x, w, bias, groups, (kernel, strides, dilations, before), out)
        return
    attrs = {"g": groups} | planar(s=strides, d=dilations, p=before)
    inputs = [x, w, bias, "", "", ""]
    context.emit(node, "conv", inputs, [(x.shape[0], w.shape[0], *out)], attrs)


def _volume(context, node, x, w, bias, groups: int, numbers, out) -> None:
    """The convolution of x [n, c, depth, h, w] with w [k, c / groups, kd, kh, kw].

    Args:
      numbers: kernel, strides, dilations, pads before, three each.
    """
    kernel, strides, dilations, before = numbers
    n, (depth, height, width), channels = x.shape[0], x.shape[2:], w.shape[0]
    flat = kernel[1:] == [1, 1] and strides[1:] == [1, 1] and before[1:] == [0, 0]
    if flat and out[1:] == [height, width]:
        attrs = {"g": groups} | planar(s=(strides[0], 1), d=(dilations[0], 1), p=(before[0], 0))
        rows = _viewed(context, node, x, (n, x.shape[1], depth, height * width))
        taps = _viewed(context, node, w, (*w.shape[:3], 1))
        made = _convolved(
            context, node, rows, taps, bias, (n, channels, out[0], height * width), attrs
        )
        context.view(node, made, (n, channels, *out))
        return
    attrs = {"g": groups} | planar(s=strides[1:], d=dilations[1:], p=before[1:])
    pictures = _slices(context, node, x, kernel[0], strides[0], dilations[0], before[0], out[0])
    taps = _viewed(context, node, w, (channels, prod(w.shape[1:3]), *w.shape[3:]))
    shape = (n * out[0], channels, *out[1:])
    made = _convolved(context, node, pictures, taps, bias, shape, attrs)
    split = _viewed(context, node, context.named(made), (n, out[0], channels, *out[1:]))
    copy_of(context, node, [split], *permuted(split.shape, (0, 2, 1, 3, 4)))


def _viewed(context, node, value, shape):
    return context.named(context.reshaped(node, value, shape))


def _convolved(context, node, x, w, bias, shape, attrs) -> str:
    made = context.temporary(node, "plane", shape)
    context.emit(node, "conv", [x, w, bias, "", "", ""], [shape], attrs, outputs=[made])
    return made


def _slices(context, node, x, taps: int, stride: int, dilation: int, before: int, count: int):
    """Images [n * count, channels * taps, h, w]: for each window position, the slices it reads;
    zeros outside the input."""
    n, channels, depth, *plane = x.shape
    area, moves = prod(plane), []
    shape = (n, count, channels, taps, area)
    steps = contiguous(shape)
    for tap in range(taps):
        first = tap * dilation - before  # the slice that the first window reads
        start = max(0, -(first // stride))
        stop = min(count, (depth - 1 - first) // stride + 1)
        if stop <= start:
            continue
        dims = (n, stop - start, channels, area)
        xs = (channels * depth * area, stride * area, depth * area, 1)
        ys = (steps[0], steps[1], steps[2], 1)
        places = (first + start * stride) * area, start * steps[1] + tap * steps[3]
        moves.append((0, *places, dims, xs, ys))
    covered = sum(prod(move[3]) for move in moves) == prod(shape)
    made = context.temporary(node, "slices", (n * count, channels * taps, *plane))
    attrs = {"moves": tuple(moves), "fill": None if covered else 0.0, "shared": 1}
    named = (n * count, channels * taps, *plane)
    context.emit(node, "copy", [x], [named], attrs, outputs=[made])
    return context.named(made)
