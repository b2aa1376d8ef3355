"""Max and average pooling, 1-D to 3-D. Saved: for max, the position in the window (one byte).

3-D pooling takes two steps: over height and width, then over depth. It is a maximum of maxima (the
first wins in both) or a mean of means (the count of elements is a product over the axes).
"""

import math

from . import samples
from .conv import geometry, planar, window
from .onnx_ops import images, onnx_rule
from .pool_lp import dilated_average, planes
from .registry import Op, register
from .strides import prod


def _window(values, attrs) -> int:
    return values["y"].size * attrs["kh"] * attrs["kw"]


# y = maximum of each window, idx = its position; or y = mean. dx (+)= dy at the maxima, or spread
# over each window.
register(
    Op("maxpool", "x -> y idx", planes, gradient="idx dy", cost=_window, samples=samples.images)
)
register(Op("maxpool_bwd", "idx dy -> dx", planes))
register(Op("avgpool", "x -> y", planes, gradient="dy", cost=_window, samples=samples.images))
register(Op("avgpool_bwd", "dy -> dx", planes))


@onnx_rule("AveragePool", joined=images)
@onnx_rule("MaxPool", joined=images, picks=True)
def pool(context, node) -> None:
    x = context.value(node, 0)
    rank = len(x.shape) - 2
    if rank not in (1, 2, 3):
        raise node.fail(f"input has shape {list(x.shape)}", "1-D, 2-D or 3-D pooling")
    kernel, strides, dilations = geometry(node, rank)
    ceil_mode = node.attrs.get("ceil_mode", 0)
    before, after, out = window(node, x.shape[2:], kernel, strides, dilations, ceil_mode)
    if any(
        max(b, a) >= d * (k - 1) + 1
        for b, a, d, k in zip(before, after, dilations, kernel, strict=True)
    ):
        raise node.fail(f"pads {before} and {after}", f"pads smaller than the window {kernel}")
    if math.prod(kernel) > 2**16:
        raise node.fail(f"a window of {kernel}", f"at most {2**16} elements")
    if node.op_type == "MaxPool" and context.reads(node, 1):
        raise node.fail("its second output (indices) is used", "only the first output in use")
    numbers = (kernel, strides, before, after, dilations)
    if rank == 3:
        _volume(context, node, x, numbers, out)
    elif node.op_type == "AveragePool" and max(dilations) > 1:
        dilated_average(context, node)
    else:
        _plane(context, node, x, numbers, out, node.outputs[0])


def _plane(context, node, x, numbers, out, output: str) -> None:
    """Pool over the last one or two axes into the value `output`.

    Args:
      numbers: kernel, strides, pads before and after, dilations; one number per axis each.
    """
    kernel, strides, before, after, dilations = numbers
    attrs = planar(k=kernel, s=strides, p=before, d=dilations)
    attrs["pb"], attrs["pr"] = planar(p=after).values()
    shape = (*x.shape[:2], *out)
    if node.op_type == "MaxPool":
        small = attrs["kh"] * attrs["kw"] <= 256
        index = context.temporary(node, "index", shape, "u8" if small else "u16")
        context.emit(node, "maxpool", [x], [shape, shape], attrs, outputs=[output, index])
        return
    attrs["include_pad"] = int(node.attrs.get("count_include_pad", 0))
    context.emit(node, "avgpool", [x], [shape], attrs, outputs=[output])


def _volume(context, node, x, numbers, out) -> None:
    """Pool [n, c, depth, h, w] over height and width, then over depth."""
    n, c, depth, h, w = x.shape
    if node.op_type == "AveragePool" and max(numbers[-1]) > 1:
        raise node.fail(f"3-D average pooling with dilations {list(numbers[-1])}", "no dilation")
    neutral = (1, 1, 0, 0, 1)
    if any(list(part)[1:] != [k, k] for part, k in zip(numbers, neutral, strict=True)):
        flat = context.named(context.reshaped(node, x, (n, c * depth, h, w)))
        made = context.temporary(node, "plane", (n, c * depth, *out[1:]))
        _plane(context, node, flat, [list(part)[1:] for part in numbers], out[1:], made)
        x = context.named(made)
    flat = context.named(context.reshaped(node, x, (n, c, depth, prod(out[1:]))))
    made = context.temporary(node, "depth", (n, c, out[0], prod(out[1:])))
    columns = [[part[0], k] for part, k in zip(numbers, neutral, strict=True)]
    _plane(context, node, flat, columns, (out[0], prod(out[1:])), made)
    context.view(node, made, (n, c, *out))


@onnx_rule("GlobalAveragePool", joined=images)
@onnx_rule("GlobalMaxPool", joined=images, picks=True)
def global_pool(context, node) -> None:
    x = context.value(node, 0)
    axes = tuple(range(2, len(x.shape)))
    shape = (*x.shape[:2], *[1] * len(axes))
    op = "reduce_mean" if node.op_type == "GlobalAveragePool" else "reduce_max"
    context.emit(node, op, [x], [shape], {"axes": axes, "count": prod(x.shape[2:])})
