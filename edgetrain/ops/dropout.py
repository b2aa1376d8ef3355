"""Dropout: the mask is a hash of (seed, step, microbatch, node, element), so nothing is saved."""

from ..ir import Graph, Node
from ..ir.keys import key_of
from .registry import Call, Op, onnx_rule, register


class Dropout(Op):
    """y = x / (1 - p) where the mask keeps it, else 0."""

    in_place = ((0, 0),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, y = node.inputs[0], node.outputs[0]
        args = {"x": x, "y": y, "ctl": "ctl", "key": node.attrs["key"], "p": node.attrs["p"]}
        return [Call("dropout", args | {"n": graph.values[y].size})]

    def vjp(self, grads, node: Node) -> None:
        dy, x = grads.of(node.outputs[0]), node.inputs[0]
        if dy and grads.needs(x):
            grads.contribute(x, "dropout_bwd", [dy], dict(node.attrs))


class DropoutBackward(Op):
    """dx (+)= dy through the same mask; may overwrite dy."""

    in_place = ((0, 0),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        dy, dx = node.inputs[0], node.outputs[0]
        args = {"dy": dy, "dx": dx, "ctl": "ctl", "key": node.attrs["key"], "p": node.attrs["p"]}
        args |= {"n": graph.values[dx].size, "acc": node.attrs["acc"]}
        return [Call("dropout_bwd", args)]


register(Dropout("dropout"))
register(DropoutBackward("dropout_bwd"))


@onnx_rule("Dropout")
def dropout(context, node) -> None:
    x = context.value(node, 0)
    ratio = float(node.attrs.get("ratio", 0.5))
    if context.has(node, 1):
        known = context.const(node, 1)
        if known is None:
            raise node.fail("a ratio that depends on values", "a constant")
        ratio = float(known.ravel()[0])
    if not 0.0 <= ratio < 1.0:
        raise node.fail(f"ratio {ratio}", "0 or more and below 1")
    if ratio == 0.0:
        context.bind(node, 0, x.name)
        return
    attrs = {"p": ratio, "key": key_of(node.outputs[0])}
    context.emit(node, "dropout", [x], [x.shape], attrs)
