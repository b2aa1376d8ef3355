"""Transposed convolution, 1-D to 3-D, using the three kernels of convolution.

It is the input gradient of a convolution: forward is `conv_dx`, the input gradient is `conv`, the
weight gradient is `conv_dw` with image and gradient exchanged. Inputs of the ir op: x [n, c, ...],
w [c, k/g, ...], bias [k]. Saved for backward: x (weight gradient) and w (input gradient).

In 3-D it is a 2-D one from [batch * depth, channels, height, width] to [batch * depth, channels *
window depth, ...]; overlapping slices are added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir import Graph, Node
from . import samples
from .conv import CONV_DX, GEOMETRY, auto_pad, contribute_bias, optional_bias, planar, weighted
from .movement import copy_of
from .onnx_ops import WEIGHT_AND_BIAS, images, onnx_rule
from .registry import Call, Op, register
from .storing import PLAIN
from .strides import contiguous, permuted, prod, spread


class ConvTranspose(Op):
    """y = transposed convolution of x with w, + bias."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, w, bias = node.inputs
        y, calls = graph.values[node.outputs[0]], []
        if bias:
            rows = y.shape[0], y.shape[1], prod(y.shape[2:])
            args = {"x": bias, "y": y.name} | PLAIN | spread((y.shape[1], 1), rows)
            calls.append(Call("copy", args))
        own = replace(node, inputs=(x, w), attrs={**node.attrs, "acc": int(bool(bias))})
        return [*calls, CONV_DX.call(own, graph)]

    def chosen(self, node: Node, graph: Graph) -> Node:
        own = CONV_DX.chosen(replace(node, inputs=node.inputs[:2]), graph)
        return replace(node, attrs=own.attrs)

    def shortcut(self, node: Node) -> bool:
        return CONV_DX.shortcut(node)

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if not dy:
            return
        x, w, bias = node.inputs
        sizes = {key: node.attrs[key] for key in GEOMETRY}
        if grads.needs(w):
            grads.contribute(w, "conv_dw", [dy, x, "", "", ""], sizes)
        contribute_bias(grads, bias, dy)
        if grads.needs(x):
            # A convolution overwrites; a copy that adds sums it with other contributions.
            part = grads.builder.value(f"{x}.grad", grads.value(x).shape, "f32", "gradient")
            grads.emit("conv", [dy, w, "", "", "", ""], [part], sizes)
            grads.alias(x, part)

    def flops(self, node: Node, graph: Graph) -> int:
        return CONV_DX.flops(replace(node, inputs=node.inputs[:2]), graph)

    def arranged(self, node: Node, graph: Graph) -> Mapping[str, int]:
        return CONV_DX.arranged(replace(node, inputs=node.inputs[:2]), graph)


register(ConvTranspose("conv_transpose", samples=samples.images, layer=True))


def _extent(node, sizes, kernel, strides, dilations) -> tuple[list[int], list[int]]:
    """(pads before, output sizes) by ONNX rules."""
    rank = len(kernel)
    pads = list(node.attrs.get("pads", [0] * 2 * rank))
    extra = list(node.attrs.get("output_padding", [0] * rank))
    wanted = list(node.attrs.get("output_shape", []))[-rank:]
    mode = auto_pad(node)
    if not len(strides) == len(dilations) == len(extra) == rank or len(pads) != 2 * rank:
        raise node.fail(
            f"pads {pads}, strides {strides}, dilations {dilations}, output_padding {extra}",
            f"{rank} spatial dimensions",
        )
    if min(*strides, *dilations, *kernel) < 1 or min(*pads, *extra) < 0:
        raise node.fail(
            f"kernel {list(kernel)}, strides {strides}, dilations {dilations}, pads {pads}, "
            f"output_padding {extra}",
            "positive sizes and pads of at least 0",
        )
    if mode in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    before, out = [], []
    for k in range(rank):
        whole = strides[k] * (sizes[k] - 1) + extra[k] + (kernel[k] - 1) * dilations[k] + 1
        if wanted:
            total = max(0, whole - wanted[k])
            small = total // 2
            before.append(small if mode == "SAME_UPPER" else total - small)
            out.append(wanted[k])
        else:
            first, last = (0, 0) if mode == "VALID" else (pads[k], pads[k + rank])
            before.append(first)
            out.append(whole - first - last)
    return before, out


def _width(node, shape: Sequence[int]) -> int:
    return shape[1] * node.attrs.get("group", 1)


@onnx_rule("ConvTranspose", weights=(1, 2), names=WEIGHT_AND_BIAS, width=_width, joined=images)
def conv_transpose(context, node) -> None:
    x, w, groups, (kernel, strides, dilations) = weighted(context, node, 3)
    before, out = _extent(node, x.shape[2:], kernel, strides, dilations)
    channels = w.shape[1] * groups
    bias = optional_bias(context, node, channels)
    attrs = {"g": groups} | planar(s=strides[-2:], d=dilations[-2:], p=before[-2:])
    if len(kernel) < 3:
        context.emit(node, "conv_transpose", [x, w, bias], [(x.shape[0], channels, *out)], attrs)
        return
    n, _, depth, *plane = x.shape
    pictures = context.temporary(node, "pictures", (n, depth, x.shape[1], *plane))
    order = permuted(x.shape, (0, 2, 1, 3, 4))
    copy_of(context, node, [x], *order, outputs=[pictures])
    flat = context.reshaped(node, context.named(pictures), (n * depth, x.shape[1], *plane))
    taps = context.reshaped(node, w, (w.shape[0], w.shape[1] * kernel[0], *kernel[1:]))
    made = context.temporary(node, "slices", (n * depth, channels * kernel[0], *out[1:]))
    shapes = [context.named(made).shape]
    context.emit(node, "conv_transpose", [flat, taps, ""], shapes, attrs, outputs=[made])
    sizes = n, channels, depth, kernel[0], prod(out[1:])
    walks = _moves(sizes, out[0], strides[0], dilations[0], before[0])
    if not walks:
        raise node.fail(f"pads crop everything of {list(x.shape)}", "a nonempty output")
    _added(context, node, made, bias, (n, channels, *out), walks)


def _moves(sizes, out: int, stride: int, dilation: int, before: int) -> list[list]:
    """Copy moves from [n, depth, channels, taps, area] to [n, channels, out, area], in groups
    without overlapping writes.

    Args:
      sizes: n, channels, depth, taps, area.
    """
    n, channels, depth, taps, area = sizes
    groups: list[tuple[set[int], list]] = []
    xs, ys = contiguous((n, depth, channels, taps, area)), contiguous((n, channels, out, area))
    for tap in range(taps):
        first = tap * dilation - before  # the output slice for the first input slice
        start, stop = max(0, -(first // stride)), min(depth, (out - 1 - first) // stride + 1)
        if stop <= start:
            continue
        dims = (n, channels, stop - start, area)
        places = start * xs[1] + tap * xs[3], (first + start * stride) * ys[2]
        move = (0, *places, dims, (xs[0], xs[2], xs[1], 1), (ys[0], ys[1], stride * ys[2], 1))
        rest = first % stride
        group = next((group for group in groups if rest not in group[0]), None)
        if group is None:
            group = (set(), [])
            groups.append(group)
        group[0].add(rest)
        group[1].append(move)
    return [moves for _, moves in groups]


def _added(context, node, made: str, bias, shape, groups: Sequence[list]) -> None:
    """Emit the node's output: the sum of one copy per group of moves, and the bias."""
    parts = []
    for moves in groups:
        covered = sum(prod(move[3]) for move in moves) == prod(shape)
        parts.append(context.temporary(node, "depth", shape))
        fill = None if covered else 0.0
        copy_of(context, node, [context.named(made)], shape, moves, fill, [parts[-1]])
    if bias:
        channels = (1, shape[1], *[1] * (len(shape) - 2))
        parts.append(context.reshaped(node, bias, channels))
    total = parts[0]
    for k, part in enumerate(parts[1:], 2):
        outputs = [context.temporary(node, "sum", shape)] if k < len(parts) else None
        (total,) = context.emit(node, "add", [total, part], [shape], outputs=outputs)
    if len(parts) == 1:
        context.view(node, total, shape)
