"""Softmax and LogSoftmax over one axis. Saved: the output."""

from ..ir import Graph, Node
from .registry import Call, Op, onnx_rule, register
from .strides import prod


def split_at(shape, axis: int) -> dict[str, int]:
    """The shape as outer x n x inner around an axis."""
    return {"outer": prod(shape[:axis]), "n": shape[axis], "inner": prod(shape[axis + 1 :])}


class Softmax(Op):
    """y = softmax or log_softmax of x over attrs['axis']."""

    in_place = ((0, 0),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, y = node.inputs[0], node.outputs[0]
        sizes = split_at(graph.values[x].shape, node.attrs["axis"])
        return [Call(self.name, {"x": x, "y": y} | sizes)]

    def vjp(self, grads, node: Node) -> None:
        dy, x = grads.of(node.outputs[0]), node.inputs[0]
        if dy and grads.needs(x):
            attrs = {"axis": node.attrs["axis"]}
            grads.contribute(x, f"{self.name}_bwd", [node.outputs[0], dy], attrs)

    def flops(self, node: Node, graph: Graph) -> int:
        return 5 * graph.values[node.outputs[0]].size


class SoftmaxBackward(Op):
    """dx (+)= gradient from y and dy; may overwrite dy."""

    in_place = ((0, 1),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        y, dy = node.inputs[:2]
        sizes = split_at(graph.values[y].shape, node.attrs["axis"])
        args = {"y": y, "dy": dy, "dx": node.outputs[0], "acc": node.attrs["acc"]}
        return [Call(self.name, args | sizes)]


for _name in ("softmax", "log_softmax"):
    register(Softmax(_name))
    register(SoftmaxBackward(f"{_name}_bwd"))


@onnx_rule("Softmax", "LogSoftmax")
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
