"""LpPool, and AveragePool with dilation, which uses a depthwise convolution with ones. Saved: input
and output.

If a norm is 0, its gradient is 0, like torch.linalg.vector_norm.
"""

import numpy as np

from . import samples
from .conv import flat, geometry, planar, window
from .onnx_ops import images, onnx_rule
from .registry import Op, register
from .strides import prod


def planes(values, attrs) -> dict[str, int]:
    """A kernel's sizes of images [n, c, h, wd] and windows [oh, ow]."""
    xs, ys = flat(values["x"].shape), flat(values["y"].shape)
    return dict(zip(("n", "c", "h", "wd", "oh", "ow"), (*xs, *ys[2:]), strict=True))


def _work(values, attrs) -> int:
    return 4 * values["y"].size * attrs["kh"] * attrs["kw"]


def windows(context, node, x):
    """(attributes, kernel, output shape, number of input elements in each window by axis)."""
    rank = len(x.shape) - 2
    if rank not in (1, 2):
        raise node.fail(f"input has shape {list(x.shape)}", "1-D or 2-D pooling")
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
    """AveragePool: window sums divided by the number of elements in each window."""
    x = context.value(node, 0)
    attrs, kernel, shape, counts = windows(context, node, x)
    total = context.temporary(node, "total", shape)
    summed(context, node, x, attrs, kernel, shape, outputs=[total])
    context.room(node, prod(shape[2:]), 16, weight=4)
    number = counts[0] if len(counts) == 1 else np.outer(*counts)
    if number.min() < 1:
        raise node.fail("a window covers only padding", "windows that overlap the input")
    share = context.constant(node, "share", (1.0 / number).astype(np.float32))
    context.emit(node, "mul", [total, share], [shape])


def _exponent(node) -> float:
    p = float(node.attrs.get("p", 2))
    if not p >= 1:
        raise node.fail(f"p {p}", "1 or more")
    return p


# y = (sum |x|^p)^(1/p) of each window; dx (+)= gradient from x, y and dy, 0 where y is 0.
register(Op("lppool", "x -> y", planes, gradient="x y dy", cost=_work, samples=samples.images))
register(Op("lppool_bwd", "x y dy -> dx", planes))


@onnx_rule("LpPool", joined=images)
def lp_pool(context, node) -> None:
    x, p = context.value(node, 0), _exponent(node)
    rank = len(x.shape) - 2
    if rank not in (1, 2):
        raise node.fail(f"input has shape {list(x.shape)}", "1-D or 2-D pooling")
    kernel, strides, dilations = geometry(node, rank)
    ceil_mode = node.attrs.get("ceil_mode", 0)
    before, _, out = window(node, x.shape[2:], kernel, strides, dilations, ceil_mode)
    attrs = {"p": p} | planar(k=kernel, s=strides, p=before, d=dilations)
    context.emit(node, "lppool", [x], [(*x.shape[:2], *out)], attrs)


@onnx_rule("GlobalLpPool", joined=images)
def global_lp_pool(context, node) -> None:
    x, p = context.value(node, 0), _exponent(node)
    axes = tuple(range(2, len(x.shape)))
    attrs = {"axes": axes, "count": prod(x.shape[2:]), "p": p}
    op = "reduce_l1" if p == 1 else "reduce_norm"
    context.emit(node, op, [x], [(*x.shape[:2], *[1] * len(axes))], attrs)
