"""Windows summed by a depthwise convolution of ones: LpPool, and AveragePool with dilation.

Nodes of their own for each part, so the planner may forget and recompute what lies between. Where
a window's norm is 0 its gradient is not finite, as torch's.
"""

import numpy as np

from .conv import geometry, planar, window
from .elementwise import scalar
from .registry import images, onnx_rule
from .strides import prod


def powered(context, node, x, p: float):
    """|x| ** p as a value."""
    if p == 2:
        out = context.temporary(node, "square", x.shape)
        context.emit(node, "mul", [x, x], [x.shape], outputs=[out])
        return context.named(out)
    out = context.temporary(node, "abs", x.shape)
    context.emit(node, "abs", [x], [x.shape], outputs=[out])
    if p != 1:
        raised = context.temporary(node, "power", x.shape)
        exponent = scalar(context, node, "p", p)
        context.emit(node, "pow", [out, exponent], [x.shape], outputs=[raised])
        out = raised
    return context.named(out)


def rooted(context, node, total: str, shape, p: float) -> None:
    """The node's output: total ** (1 / p)."""
    if p == 2:
        context.emit(node, "sqrt", [total], [shape])
    else:
        context.emit(node, "pow", [total, scalar(context, node, "root", 1 / p)], [shape])


def windows(context, node, x):
    """(attributes, kernel, shape of the output, elements of the input in each window's axes)."""
    rank = len(x.shape) - 2
    if rank not in (1, 2):
        raise node.fail(f"input of shape {list(x.shape)}", "1-D or 2-D pooling")
    kernel, strides, dilations = geometry(node, rank)
    before, after, out = window(
        node, x.shape[2:], kernel, strides, dilations, node.attrs.get("ceil_mode", 0)
    )
    include = node.attrs.get("count_include_pad", 0)
    counts = []
    for k in range(rank):
        context.room(node, out[k] * kernel[k], 16, weight=8)
        taps = np.arange(out[k])[:, None] * strides[k] - before[k]
        taps = taps + np.arange(kernel[k]) * dilations[k]
        low, high = (-before[k], x.shape[2 + k] + after[k]) if include else (0, x.shape[2 + k])
        counts.append(((taps >= low) & (taps < high)).sum(1))
    attrs = {"g": x.shape[1]} | planar(s=strides, d=dilations, p=before)
    return attrs, kernel, (*x.shape[:2], *out), counts


def summed(context, node, x, attrs, kernel, shape, *, outputs=None) -> None:
    """Emit the sums of the windows."""
    context.room(node, x.shape[1] * prod(kernel))
    ones = context.constant(node, "ones", np.ones((x.shape[1], 1, *kernel), np.float32))
    context.emit(node, "conv", [x, ones, "", "", "", ""], [shape], attrs, outputs=outputs)


def dilated_average(context, node) -> None:
    """AveragePool: the sums over how many elements each window has."""
    x = context.value(node, 0)
    attrs, kernel, shape, counts = windows(context, node, x)
    total = context.temporary(node, "total", shape)
    summed(context, node, x, attrs, kernel, shape, outputs=[total])
    context.room(node, prod(shape[2:]), 16, weight=4)
    number = counts[0] if len(counts) == 1 else np.outer(*counts)
    if number.min() < 1:
        raise node.fail("a window of padding alone", "windows that meet the input")
    share = context.constant(node, "share", (1.0 / number).astype(np.float32))
    context.emit(node, "mul", [total, share], [shape])


def _exponent(node) -> float:
    p = float(node.attrs.get("p", 2))
    if not p >= 1:
        raise node.fail(f"p {p}", "1 or more")
    return p


@onnx_rule("LpPool", joined=images)
def lp_pool(context, node) -> None:
    x, p = context.value(node, 0), _exponent(node)
    attrs, kernel, shape, _ = windows(context, node, x)
    inner = powered(context, node, x, p)
    if p == 1:
        summed(context, node, inner, attrs, kernel, shape)
        return
    total = context.temporary(node, "total", shape)
    summed(context, node, inner, attrs, kernel, shape, outputs=[total])
    rooted(context, node, total, shape, p)


@onnx_rule("GlobalLpPool", joined=images)
def global_lp_pool(context, node) -> None:
    x, p = context.value(node, 0), _exponent(node)
    axes = tuple(range(2, len(x.shape)))
    shape = (*x.shape[:2], *[1] * len(axes))
    inner, sizes = powered(context, node, x, p), {"axes": axes, "count": prod(x.shape[2:])}
    if p == 1:
        context.emit(node, "reduce_sum", [inner], [shape], sizes)
        return
    total = context.temporary(node, "total", shape)
    context.emit(node, "reduce_sum", [inner], [shape], sizes, outputs=[total])
    rooted(context, node, total, shape, p)
