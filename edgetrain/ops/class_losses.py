"""Losses with class indices inside a model's graph.

They are built from log_softmax, pick and mean. Ignored labels pick class 0 with weight 0; then the
mean divides by a sum over the batch, so such a batch is not split.
"""

from collections.abc import Sequence

import numpy as np

from ..ir import Value
from .onnx_ops import OnnxNode, onnx_rule


def _classes(context, node: OnnxNode, rank: int) -> tuple[tuple[int, ...], str]:
    return (1,), "the classes"


class _Made:
    """Emits values of a node, float32 unless `dtype` says otherwise."""

    def __init__(self, context, node) -> None:
        self.context, self.node = context, node

    def __call__(self, op: str, inputs: Sequence, shape, attrs=None, dtype="f32") -> Value:
        out = self.context.temporary(self.node, op, shape, dtype)
        self.context.emit(self.node, op, inputs, [shape], attrs, outputs=[out], dtype=dtype)
        return self.context.named(out)

    def number(self, tag: str, value: float, kind: type) -> str:
        return self.context.constant(self.node, tag, np.array(value, kind))


@onnx_rule("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", settings=(2,), joined=_classes)
def class_loss(context, node) -> None:
    x, labels, made = context.value(node, 0), context.value(node, 1), _Made(context, node)
    if len(x.shape) < 2 or labels.shape != (x.shape[0], *x.shape[2:]) or labels.dtype != "i32":
        raise node.fail(
            f"scores have shape {list(x.shape)}, labels {list(labels.shape)}",
            "[batch, classes, ...] and integers [batch, ...]",
        )
    reduction = node.attrs.get("reduction", "mean")
    if reduction not in ("none", "mean", "sum"):
        raise node.fail(f"reduction {reduction!r}", "none, mean or sum")
    scores = x
    if node.op_type == "SoftmaxCrossEntropyLoss":
        read = context.reads(node, 1)
        outputs = [node.outputs[1] if read else context.temporary(node, "scores", x.shape)]
        (name,) = context.emit(node, "log_softmax", [x], [x.shape], {"axis": 1}, outputs=outputs)
        scores = context.named(name)
    losses, factor = _losses(made, scores, labels)
    axes = {"axes": tuple(range(len(labels.shape)))}
    if reduction == "none":
        context.view(node, losses.name, labels.shape)
    elif reduction == "sum":
        context.emit(node, "reduce_sum", [losses], [()], axes)
    elif factor is None:
        context.emit(node, "reduce_mean", [losses], [()], axes)
    else:
        sums = [made("reduce_sum", [each], (), axes) for each in (losses, factor)]
        context.emit(node, "div", sums, [()])


def _losses(made: _Made, scores: Value, labels: Value) -> tuple[Value, Value | None]:
    """(loss, weight) of each label; weight None: 1 each."""
    context, node, shape = made.context, made.node, labels.shape
    computed, sound = _is_computed(context, labels.name), None
    ignored, kept = node.attrs.get("ignore_index"), None
    if ignored is not None:
        hit = made("equal", [labels, made.number("ignored", ignored, np.int32)], shape, None, "u8")
        kept = made("truth", [hit], shape, {"want": 0}, "u8")
        first = made.number("first", 0, np.int32)
        labels = made("where", [kept, labels, first], shape, None, "i32")
    if computed:
        labels, sound = _sound(made, labels, scores.shape[1])
    places = context.reshaped(node, labels, (shape[0], 1, *shape[1:]))
    picked = made("pick", [scores, places], context.named(places).shape, {"axis": 1})
    losses = made("neg", [context.named(context.reshaped(node, picked, shape))], shape)
    if sound is not None:
        losses = made("mul", [losses, sound], shape)
    elif kept is not None:
        losses = _checked(made, losses, labels, scores.shape[1])
    factor = None
    if context.has(node, 2):
        weights = context.value(node, 2)
        if weights.shape != scores.shape[1:2]:
            raise node.fail(f"weights have shape {list(weights.shape)}", f"[{scores.shape[1]}]")
        factor = made("gather", [weights, labels], shape, {"axis": 0})
        losses = made("mul", [losses, factor], shape)
    if kept is not None:
        zero = made.number("zero", 0.0, np.float32)
        factor = made("where", [kept, factor or made.number("one", 1.0, np.float32), zero], shape)
        losses = made("where", [kept, losses, zero], shape)
    return losses, factor


def _is_computed(context, name: str) -> bool:
    """Whether labels are computed by arithmetic, so their limits are not those of an input."""
    node = context.maker(name)
    while node is not None and node.op in ("copy", "expand", "detach") and len(node.inputs) == 1:
        node = context.maker(node.inputs[0])
    return node is not None and node.op not in ("copy", "expand", "detach", "where")


def _checked(made: _Made, losses: Value, labels: Value, classes: int) -> Value:
    """Make the loss NaN for an invalid label, so it can't be mistaken for another class."""
    inside, shape = _inside(made, labels, classes), labels.shape
    return made("where", [inside, losses, made.number("nan", np.nan, np.float32)], shape)


def _sound(made: _Made, labels: Value, classes: int) -> tuple[Value, Value]:
    """(labels, factor): an invalid label becomes class 0 with factor NaN, also in gradients, so the
    step is skipped."""
    inside, shape = _inside(made, labels, classes), labels.shape
    numbers = made.number("sound", 1.0, np.float32), made.number("nan", np.nan, np.float32)
    factor = made("where", [inside, *numbers], shape)
    zero = made.number("some", 0, np.int32)
    valid = made.context.temporary(made.node, "valid", shape, "i32")
    made.context.emit(made.node, "where", [inside, labels, zero], [shape], outputs=[valid])
    return made.context.named(valid), factor


def _inside(made: _Made, labels: Value, classes: int) -> Value:
    """A mask of the labels that are valid classes."""
    shape, parts = labels.shape, []
    for op, end in (("less", classes), ("greater_equal", 0)):
        parts.append(made(op, [labels, made.number("end", end, np.int32)], shape, None, "u8"))
    return made("and", parts, shape, None, "u8")
