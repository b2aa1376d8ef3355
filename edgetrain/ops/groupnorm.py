"""Group, layer, instance and RMS normalisation. Saved: the input and the statistics of each group.

InstanceNormalization is GroupNormalization with one channel per group.
"""

from ..ir import Node, Value
from . import samples
from .affine import fits, normalise, operand
from .elementwise import scalar
from .onnx_ops import AFFINE, WEIGHT_AND_BIAS, OnnxNode, images, onnx_rule
from .registry import Op, register
from .strides import channels, prod
from .structure import Structure


class Normalise(Op):
    """y = normalised x * scale (+ shift); inputs x, scale(, shift); outputs y, stat."""

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


def _rows(values, attrs) -> dict[str, int]:
    return {"rows": values["x"].size // attrs["n"]}


def _register(name: str, scale: str, sizes, *costs: int | None) -> None:
    """Register the op, its input gradient (may overwrite dy), and the sums over images and pixels,
    or rows, that are added to the accumulators of scale and shift.

    Args:
      scale: operands, as in "gamma beta".
      costs: costs of the three ops.
    """
    forward, to_input, to_scale = costs
    sums = " ".join(f"d{operand}" for operand in scale.split())
    by_rows = sizes is _rows
    apart = samples.over_rows if by_rows else samples.images
    register(
        Normalise(
            name,
            f"x {scale} -> y stat",
            sizes,
            cost=forward,
            in_place=((0, 0),),
            samples=apart,
            structure=Structure.ROWS if by_rows else None,
        )
    )
    for op in (
        Op(f"{name}_dx", "x gamma stat dy -> dx", sizes, cost=to_input, in_place=((0, 3),)),
        Op(f"{name}_dparam", f"x stat dy -> {sums}", sizes, cost=to_scale),
    ):
        op.reads_rounded = True
        register(op)


_register("group_norm", "gamma beta", channels, 6, 8, 4)
_register("rms_norm", "gamma", _rows, 6, 8, 4)
_register("layer_norm", "gamma beta", _rows, 6, None, None)


def _image(context, node) -> tuple[Value, int]:
    x = context.value(node, 0)
    if len(x.shape) < 2:
        raise node.fail(f"input has shape {list(x.shape)}", "[batch, channels, ...]")
    return x, x.shape[1]


def _group_norm(context, node, x: Value, groups: int, affine: list[Value | None]) -> None:
    attrs = {"groups": groups, "eps": float(node.attrs.get("epsilon", 1e-5))}
    channels, stat = x.shape[1], (2, x.shape[0] * groups)
    along = (1, channels, *[1] * (len(x.shape) - 2))
    normalise(context, node, "group_norm", x, affine, channels, stat, attrs, along)


@onnx_rule("InstanceNormalization", **AFFINE, names=WEIGHT_AND_BIAS, joined=images)
def instance_normalization(context, node) -> None:
    x, channels = _image(context, node)
    affine = [operand(context, node, index, neutral) for index, neutral in ((1, 1.0), (2, 0.0))]
    for value in affine:
        if value and value.shape != (channels,):
            raise node.fail(f"scale or shift has shape {list(value.shape)}", f"[{channels}]")
    _group_norm(context, node, x, channels, affine)


@onnx_rule("GroupNormalization", **AFFINE, names=WEIGHT_AND_BIAS, joined=images)
def group_normalization(context, node) -> None:
    """Scale and shift are per channel from opset 21 on, per group before."""
    x, channels = _image(context, node)
    groups = int(node.attrs["num_groups"])
    if groups < 1 or channels % groups:
        raise node.fail(f"{groups} groups for {channels} channels", "a divisor of the channels")
    affine = [operand(context, node, index, neutral) for index, neutral in ((1, 1.0), (2, 0.0))]
    wanted = channels if context.opset >= 21 else groups
    for k, value in enumerate(affine):
        if value and value.shape != (wanted,):
            raise node.fail(f"scale or shift has shape {list(value.shape)}", f"[{wanted}]")
        if value and wanted != channels:
            affine[k] = _each_channel(context, node, value, channels, "scale" if k == 0 else "bias")
    _group_norm(context, node, x, groups, affine)


def _each_channel(context, node, value: Value, channels: int, tag: str) -> Value:
    """Expand a number per group to one per channel."""
    groups = value.size
    column = context.reshaped(node, value, (groups, 1))
    shape = (groups, channels // groups)
    wide = context.temporary(node, f"{tag}.expanded", shape)
    context.emit(node, "expand", [column], [shape], outputs=[wide])
    return context.named(context.reshaped(node, context.named(wide), (channels,)))


def _normalised(context, node: OnnxNode, rank: int) -> tuple[range, str]:
    return range(node.axis(node.attrs.get("axis", -1), rank), rank), "normalised over"


@onnx_rule(
    "RMSNormalization", weights=(1,), neutral={1: 1.0}, names=WEIGHT_AND_BIAS, joined=_normalised
)
def rms_normalization(context, node) -> None:
    x, scale = context.value(node, 0), operand(context, node, 1, 1.0)
    axis = node.axis(node.attrs.get("axis", -1), len(x.shape))
    n = prod(x.shape[axis:])
    if scale and not fits(scale.shape, x.shape):
        raise node.fail(f"scale has shape {list(scale.shape)}", f"{list(x.shape[axis:])}")
    attrs = {"n": n, "eps": float(node.attrs.get("epsilon", 1e-5))}
    normalise(context, node, "rms_norm", x, [scale], n, (x.size // n,), attrs)


@onnx_rule("LayerNormalization", **AFFINE, names=WEIGHT_AND_BIAS, joined=_normalised)
def layer_normalization(context, node) -> None:
    x = context.value(node, 0)
    scale, bias = operand(context, node, 1, 1.0), operand(context, node, 2, 0.0)
    axis = node.axis(node.attrs.get("axis", -1), len(x.shape))
    n = prod(x.shape[axis:])
    for value in (scale, bias):
        if value and not fits(value.shape, x.shape):
            raise node.fail(
                f"scale or bias has shape {list(value.shape)}", f"{list(x.shape[axis:])}"
            )
    eps = float(node.attrs.get("epsilon", 1e-5))
    attrs, stat = {"n": n, "eps": eps}, (2, x.size // n)
    normalise(context, node, "layer_norm", x, [scale, bias], n, stat, attrs)
    if any(node.outputs[1:]):
        _row_statistics(context, node, x, axis, eps)


def _row_statistics(context, node, x, axis: int, eps: float) -> None:
    """Emit the outputs Mean and InvStdDev as nodes with gradients."""
    axes = tuple(range(axis, len(x.shape)))
    shape = [1 if k in axes else d for k, d in enumerate(x.shape)]

    def step(op, inputs, size, output="", attrs=None):
        out = output or context.temporary(node, op, size)
        return context.emit(node, op, inputs, [size], attrs, outputs=[out])[0]

    mean_name, inverse_name = (*node.outputs[1:], "")[:2]
    mean = step("reduce_mean", [x], shape, mean_name, {"axes": axes})
    if not inverse_name:
        return
    centred = step("sub", [x, mean], x.shape)
    square = step("mul", [centred, centred], x.shape)
    variance = step("reduce_mean", [square], shape, attrs={"axes": axes})
    shifted = step("add", [variance, scalar(context, node, "eps", eps)], shape)
    step("reciprocal", [step("sqrt", [shifted], shape)], shape, inverse_name)
