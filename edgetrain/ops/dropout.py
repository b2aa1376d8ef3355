"""Dropout. The mask is a hash of (seed, step, microbatch, node, element), so nothing is saved."""

import numpy as np

from ..ir.keys import key_of
from . import samples
from .elementwise import elements
from .onnx_ops import OnnxNode, Subgraph, onnx_rule
from .registry import Op, register
from .structure import Structure

_IN_PLACE = ((0, 0),)
# y = x / (1 - p) for kept elements, else 0; dx (+)= dy through the same mask.
register(
    Op(
        "dropout",
        "x -> y",
        elements,
        gradient="dy",
        in_place=_IN_PLACE,
        samples=samples.dropped,
        structure=Structure.SAME,
        part="dropout_part",
    )
)
register(Op("dropout_bwd", "dy -> dx", elements, in_place=_IN_PLACE))
# The same for a part of a larger array: runs of attrs['span'] elements, 'stride' apart, from 'skip'
# on; it draws the same numbers as for the whole array.
register(Op("dropout_part", "x -> y", elements, gradient="dy", in_place=_IN_PLACE))
register(Op("dropout_part_bwd", "dy -> dx", elements, in_place=_IN_PLACE))


@onnx_rule("Dropout", settings=(1, 2), training_only=True)
def dropout(context, node) -> None:
    x = context.value(node, 0)
    ratio = float(node.attrs.get("ratio", 0.5))
    if context.has(node, 1):
        known = context.const(node, 1)
        if known is None:
            raise node.fail("the ratio is not constant", "a constant")
        ratio = float(known.ravel()[0])
    if not 0.0 <= ratio < 1.0:
        raise node.fail(f"ratio {ratio}", "at least 0 and below 1")
    if context.reads(node, 1):
        _mask(context, node, ratio)
    if ratio == 0.0:
        context.bind(node, 0, x.name)
        return
    attrs = {"p": ratio, "key": key_of(node.outputs[0])}
    context.emit(node, "dropout", [x], [x.shape], attrs)


def _mask(context, node: OnnxNode, ratio: float) -> None:
    """The second output: all true if nothing is dropped."""
    if ratio:
        raise node.fail(
            "its second output (mask) is used, which differs in training and inference",
            "ratio 0, or only the first output in use",
        )
    sizes, name = context.label(node, "sizes"), node.outputs[1]
    true = {"value": np.ones(1, np.bool_)}
    nodes = (
        OnnxNode(node.name, "Shape", (node.inputs[0],), (sizes,)),
        OnnxNode(node.name, "ConstantOfShape", (sizes,), (name,), true),
    )
    context.inline(Subgraph(nodes, {}, (name,)))
