"""Softmax and LogSoftmax over one axis. Saved: the output."""

from . import samples
from .onnx_ops import axes_from, onnx_rule
from .registry import Op, register
from .strides import prod
from .structure import Structure


def split_at(shape, axis: int) -> dict[str, int]:
    """The shape as outer x n x inner around an axis."""
    return {"outer": prod(shape[:axis]), "n": shape[axis], "inner": prod(shape[axis + 1 :])}


def _sizes(values, attrs) -> dict[str, int]:
    return split_at(values["y"].shape, attrs["axis"])


# y = softmax or log_softmax of x over attrs['axis']; dx (+)= gradient from y and dy, may overwrite
# dy.
for _name, _logarithms in (("softmax", False), ("log_softmax", True)):
    register(
        Op(
            _name, "x -> y", _sizes, cost=5, gradient="y dy", in_place=((0, 0),),
            samples=samples.over_axis, structure=Structure.ALONG, logarithms=_logarithms,
        )
    )  # fmt: skip
    register(Op(f"{_name}_bwd", "y dy -> dx", _sizes, in_place=((0, 1),)))


@onnx_rule("Softmax", "LogSoftmax", joined=axes_from("normalised over"))
def softmax(context, node) -> None:
    x = context.value(node, 0)
    name = "softmax" if node.op_type == "Softmax" else "log_softmax"
    rank = len(x.shape)
    if context.opset >= 13:
        axis = node.axis(node.attrs.get("axis", -1), rank)
        context.emit(node, name, [x], [x.shape], {"axis": axis})
        return
    # Before opset 13 the input is flattened to two dimensions at the axis.
    axis = node.axis(node.attrs.get("axis", 1), rank)
    if prod(x.shape[axis + 1 :]) == 1:
        context.emit(node, name, [x], [x.shape], {"axis": axis})
        return
    flat = (prod(x.shape[:axis]), prod(x.shape[axis:]))
    out = context.temporary(node, "flat", flat)
    rows = context.reshaped(node, x, flat)
    context.emit(node, name, [rows], [flat], {"axis": 1}, outputs=[out])
    context.view(node, out, x.shape)
