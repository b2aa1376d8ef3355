"""Local response normalisation (AlexNet). Saved: the input; the divisor is computed again."""

from ..ir import Graph, Node
from .registry import Call, Op, onnx_rule, register
from .strides import prod

_FLOATS = ("alpha", "beta", "bias")


def _sizes(node: Node, x) -> dict:
    sizes = {"n": x.shape[0], "c": x.shape[1], "s": prod(x.shape[2:]), "size": node.attrs["size"]}
    return sizes | {key: node.attrs[key] for key in _FLOATS}


class Lrn(Op):
    """y = x / (bias + alpha / size * sum of squares of neighbouring channels)^beta."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x = graph.values[node.inputs[0]]
        return [Call("lrn", {"x": x.name, "y": node.outputs[0]} | _sizes(node, x))]

    def vjp(self, grads, node: Node) -> None:
        dy, x = grads.of(node.outputs[0]), node.inputs[0]
        if dy and grads.needs(x):
            grads.contribute(x, "lrn_bwd", [x, dy], dict(node.attrs))

    def flops(self, node: Node, graph: Graph) -> int:
        return (2 * node.attrs["size"] + 40) * graph.values[node.inputs[0]].size


class LrnBackward(Op):
    """dx (+)= gradient from x and dy; may overwrite dy."""

    in_place = ((0, 1),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x = graph.values[node.inputs[0]]
        args = {"x": x.name, "dy": node.inputs[1], "dx": node.outputs[0]}
        return [Call("lrn_bwd", args | _sizes(node, x) | {"acc": node.attrs["acc"]})]

    def flops(self, node: Node, graph: Graph) -> int:
        return (4 * node.attrs["size"] + 40) * graph.values[node.inputs[0]].size


register(Lrn("lrn"))
register(LrnBackward("lrn_bwd"))


@onnx_rule("LRN")
def lrn(context, node) -> None:
    x = context.value(node, 0)
    size = int(node.attrs["size"])
    if len(x.shape) < 2 or size < 1:
        raise node.fail(f"size {size}, input of shape {list(x.shape)}", "channels, a size above 0")
    attrs = {"size": size} | {
        key: float(node.attrs.get(key, default))
        for key, default in zip(_FLOATS, (1e-4, 0.75, 1.0), strict=True)
    }
    context.emit(node, "lrn", [x], [x.shape], attrs)
