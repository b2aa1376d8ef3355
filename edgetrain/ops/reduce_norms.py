"""ReduceL1, L2, SumSquare, LogSum, LogSumExp: a sum between two element-wise functions.

Nodes of their own for each part, so the planner may forget and recompute what lies between.
"""

from .reduce import reduced_shape
from .registry import onnx_rule

# ONNX name -> (function of each element, function of the sum); "square" is a product.
_PARTS = {
    "ReduceL1": ("abs", ""),
    "ReduceL2": ("square", "sqrt"),
    "ReduceSumSquare": ("square", ""),
    "ReduceLogSum": ("", "log"),
    "ReduceLogSumExp": ("exp", "log"),
}


@onnx_rule(*_PARTS)
def reduce_norm(context, node) -> None:
    x = context.value(node, 0)
    before, after = _PARTS[node.op_type]
    found = reduced_shape(context, node, x)
    axes, shape, kept = found or ((), list(x.shape), list(x.shape))
    shift = None
    if node.op_type == "ReduceLogSumExp":
        shift = _largest(context, node, x, axes, kept)
        moved = context.temporary(node, "moved", x.shape)
        context.emit(node, "sub", [x, shift], [x.shape], outputs=[moved])
        x = context.named(moved)
    if before:
        part = context.temporary(node, before, x.shape)
        operands = [x, x] if before == "square" else [x]
        op = "mul" if before == "square" else before
        context.emit(node, op, operands, [x.shape], outputs=[part])
        x = context.named(part)
    if not after:
        context.emit(node, "reduce_sum", [x], [shape], {"axes": axes})
        return
    total = context.temporary(node, "sum", shape)
    context.emit(node, "reduce_sum", [x], [shape], {"axes": axes}, outputs=[total])
    if shift is None:
        context.emit(node, after, [total], [shape])
        return
    rest = context.temporary(node, "log", shape)
    context.emit(node, after, [total], [shape], outputs=[rest])
    flat = context.reshaped(node, context.named(shift), shape)
    context.emit(node, "add", [rest, flat], [shape])


def _largest(context, node, x, axes, kept) -> str:
    """The maximum over the axes: what keeps exp within range."""
    top, shift = (context.temporary(node, tag, kept) for tag in ("top", "shift"))
    context.emit(node, "reduce_max", [x], [kept], {"axes": axes}, outputs=[top])
    context.emit(node, "detach", [top], [kept], outputs=[shift])
    return shift
