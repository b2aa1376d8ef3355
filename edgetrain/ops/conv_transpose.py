"""Transposed convolution, 1-D and 2-D, by the convolution's own three kernels.

It is the input gradient of a convolution: forward is `conv_dx`, the input's gradient is `conv`, the
weight's is `conv_dw` with image and gradient exchanged. Inputs of the ir op: x [n, c, ...], w
[c, k/g, ...], bias [k]. Saved for backward: x (weight gradient) and w (input gradient).
"""

from dataclasses import replace

from ..ir import Graph, Node
from . import samples
from .conv import CONV_DX, GEOMETRY, auto_pad, contribute_bias, optional_bias, planar, weighted
from .registry import Call, Op, images, onnx_rule, register
from .storing import PLAIN
from .strides import prod, spread


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
            # A convolution overwrites: the sum with other contributions is a copy that adds.
            part = grads.builder.value(f"{x}.grad", grads.value(x).shape, "f32", "gradient")
            grads.emit("conv", [dy, w, "", "", "", ""], [part], sizes)
            grads.alias(x, part)

    def flops(self, node: Node, graph: Graph) -> int:
        x, w = (graph.values[n] for n in node.inputs[:2])
        return 2 * x.size * prod(w.shape[1:])


register(ConvTranspose("conv_transpose", samples=samples.images))


def _extent(node, sizes, kernel, strides, dilations) -> tuple[list[int], list[int]]:
    """(pads before, output sizes) by ONNX's rules."""
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
            "positive sizes and pads of 0 or more",
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


@onnx_rule("ConvTranspose", weights=(1, 2), joined=images)
def conv_transpose(context, node) -> None:
    x, w, groups, (kernel, strides, dilations) = weighted(context, node)
    before, out = _extent(node, x.shape[2:], kernel, strides, dilations)
    attrs = {"g": groups} | planar(s=strides, d=dilations, p=before)
    channels = w.shape[1] * groups
    inputs = [x, w, optional_bias(context, node, channels)]
    context.emit(node, "conv_transpose", inputs, [(x.shape[0], channels, *out)], attrs)
