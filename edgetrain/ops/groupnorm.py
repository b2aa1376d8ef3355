"""Group, instance and RMS normalisation. Saved: the input and the statistics of each group.

InstanceNormalization is GroupNormalization with a channel in each group.
"""

from ..ir import Graph, Node, Value
from .affine import fits, normalise, operand
from .registry import Call, Op, onnx_rule, register
from .strides import prod


def _sizes(node: Node, graph: Graph) -> dict[str, int]:
    x = graph.values[node.inputs[0]]
    if "groups" not in node.attrs:
        return {"rows": x.size // node.attrs["n"], "n": node.attrs["n"]}
    sizes = {"n": x.shape[0], "c": x.shape[1], "s": prod(x.shape[2:])}
    return sizes | {"groups": node.attrs["groups"]}


class Normalise(Op):
    """y = normalised x * scale (+ shift); inputs x, scale(, shift); outputs y, stat."""

    in_place = ((0, 0),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, gamma, *beta = node.inputs
        args: dict = {"x": x, "gamma": gamma or None, "y": node.outputs[0]}
        args |= {"stat": node.outputs[1], "eps": node.attrs["eps"]}
        if beta:
            args["beta"] = beta[0] or None
        return [Call(self.name, args | _sizes(node, graph))]

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        if not dy:
            return
        x, *affine = node.inputs
        stat = node.outputs[1]
        accumulators = [grads.accumulator(name) for name in affine]
        if any(accumulators):
            grads.emit(f"{self.name}_dparam", [x, stat, dy], accumulators, node.attrs)
        if grads.needs(x):
            grads.contribute(x, f"{self.name}_dx", [x, affine[0], stat, dy], node.attrs)

    def flops(self, node: Node, graph: Graph) -> int:
        return 6 * graph.values[node.inputs[0]].size


class NormaliseInputGrad(Op):
    """dx (+)= gradient of each group; may overwrite dy."""

    in_place = ((0, 3),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, gamma, stat, dy = node.inputs[:4]
        args = {"x": x, "gamma": gamma or None, "stat": stat, "dy": dy, "dx": node.outputs[0]}
        return [Call(self.name, args | {"acc": node.attrs["acc"]} | _sizes(node, graph))]

    def flops(self, node: Node, graph: Graph) -> int:
        return 8 * graph.values[node.inputs[0]].size


class NormaliseParamGrad(Op):
    """Accumulators of scale and shift += sums over images and pixels, or rows."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, stat, dy = node.inputs
        args: dict = {"x": x, "stat": stat, "dy": dy}
        names = zip(("dgamma", "dbeta"), node.outputs, strict=False)
        return [Call(self.name, args | {k: n or None for k, n in names} | _sizes(node, graph))]

    def flops(self, node: Node, graph: Graph) -> int:
        return 4 * graph.values[node.inputs[0]].size


for _name in ("group_norm", "rms_norm"):
    register(Normalise(_name))
    register(NormaliseInputGrad(f"{_name}_dx"))
    register(NormaliseParamGrad(f"{_name}_dparam"))


def _image(context, node) -> tuple[Value, int]:
    x = context.value(node, 0)
    if len(x.shape) < 2:
        raise node.fail(f"input of shape {list(x.shape)}", "[batch, channels, ...]")
    return x, x.shape[1]


def _group_norm(context, node, x: Value, groups: int, affine: list[Value | None]) -> None:
    attrs = {"groups": groups, "eps": float(node.attrs.get("epsilon", 1e-5))}
    channels, stat = x.shape[1], (2, x.shape[0] * groups)
    along = (1, channels, *[1] * (len(x.shape) - 2))
    normalise(context, node, "group_norm", x, affine, channels, stat, attrs, along)


@onnx_rule("InstanceNormalization", weights=(1, 2))
def instance_normalization(context, node) -> None:
    x, channels = _image(context, node)
    affine = [operand(context, node, index, neutral) for index, neutral in ((1, 1.0), (2, 0.0))]
    for value in affine:
        if value and value.shape != (channels,):
            raise node.fail(f"scale or shift of shape {list(value.shape)}", f"[{channels}]")
    _group_norm(context, node, x, channels, affine)


@onnx_rule("GroupNormalization", weights=(1, 2))
def group_normalization(context, node) -> None:
    """Scale and shift are one for each channel from opset 21 on, one for each group before."""
    x, channels = _image(context, node)
    groups = int(node.attrs["num_groups"])
    if groups < 1 or channels % groups:
        raise node.fail(f"{groups} groups of {channels} channels", "a divisor of the channels")
    affine = [operand(context, node, index, neutral) for index, neutral in ((1, 1.0), (2, 0.0))]
    wanted = channels if context.opset >= 21 else groups
    for k, value in enumerate(affine):
        if value and value.shape != (wanted,):
            raise node.fail(f"scale or shift of shape {list(value.shape)}", f"[{wanted}]")
        if value and wanted != channels:
            affine[k] = _each_channel(context, node, value, channels, "scale" if k == 0 else "bias")
    _group_norm(context, node, x, groups, affine)


def _each_channel(context, node, value: Value, channels: int, tag: str) -> Value:
    """A number for each group -> one for each channel."""
    groups = value.size
    column = context.reshaped(node, value, (groups, 1))
    shape = (groups, channels // groups)
    wide = context.temporary(node, f"{tag}.expanded", shape)
    context.emit(node, "expand", [column], [shape], outputs=[wide])
    return context.named(context.reshaped(node, context.named(wide), (channels,)))


@onnx_rule("RMSNormalization", weights=(1,))
def rms_normalization(context, node) -> None:
    x, scale = context.value(node, 0), operand(context, node, 1, 1.0)
    axis = node.axis(node.attrs.get("axis", -1), len(x.shape))
    n = prod(x.shape[axis:])
    if scale and (len(scale.shape) > len(x.shape) or not fits(scale.shape, x.shape)):
        raise node.fail(f"scale of shape {list(scale.shape)}", f"{list(x.shape[axis:])}")
    attrs = {"n": n, "eps": float(node.attrs.get("epsilon", 1e-5))}
    normalise(context, node, "rms_norm", x, [scale], n, (x.size // n,), attrs)
