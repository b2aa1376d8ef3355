"""Losses on the model's output: attached here, never taken from the file (notes of exporters).

The mean is over all targets that are not ignored. Inside a tape the gradient of a microbatch is
divided by the minibatch's nominal count, so that accumulators hold the minibatch's gradient; what
was ignored is corrected by the update. Saved: the logits; backward overwrites them.
"""

from dataclasses import dataclass

from ..errors import UsageError
from ..ir import Graph, Node, Value
from ..units import finite_number
from ..units.options import check_departures, check_types
from .registry import Call, Op, register
from .softmax import split_at

KINDS = ("cross_entropy", "mse", "bce_with_logits")


@dataclass(frozen=True, slots=True)
class Loss:
    """What is minimised.

    Attributes:
      kind: one of KINDS.
      label_smoothing, ignore_index, class_axis: for cross_entropy. class_axis None: 1, or the
        last axis of a 3-d output (a sequence model's [batch, time, classes]).
    """

    kind: str = "cross_entropy"
    label_smoothing: float = 0.0
    ignore_index: int = -100
    class_axis: int | None = None

    def __post_init__(self) -> None:
        check_types(self, "loss")
        if self.kind not in KINDS:
            raise UsageError(f"loss {self.kind!r}: expected one of {', '.join(KINDS)}.")
        smoothing = finite_number("label smoothing", self.label_smoothing, least=0, below=1)
        object.__setattr__(self, "label_smoothing", smoothing)
        check_departures(self, f"loss {self.kind}", {"kind": "loss"})

    def axis(self, shape: tuple[int, ...]) -> int:
        """The class axis of an output of this shape."""
        axis = self.class_axis
        if axis is None:
            axis = 2 if len(shape) == 3 else 1
        if not 0 < axis < max(2, len(shape)) or len(shape) < 2:
            raise UsageError(
                f"class axis {axis} of an output of shape {list(shape)}: expected an axis from 1 "
                f"to {len(shape) - 1}."
            )
        return axis

    def target_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the targets for an output of this shape."""
        if self.kind != "cross_entropy":
            return shape
        axis = self.axis(shape)
        return (*shape[:axis], *shape[axis + 1 :])

    @property
    def target_dtype(self) -> str:
        return "i32" if self.kind == "cross_entropy" else "f32"

    def attrs(self, output: Value) -> dict:
        """Attributes of the ir nodes."""
        attrs: dict = {"kind": self.kind}
        if self.kind == "cross_entropy":
            attrs |= {"axis": self.axis(output.shape), "smoothing": self.label_smoothing}
            attrs |= {"ignore": self.ignore_index}
        return attrs


_NAMES = {"cross_entropy": "ce", "mse": "mse", "bce_with_logits": "bce"}


def _sizes(node: Node, graph: Graph) -> dict:
    x = graph.values[node.inputs[0]]
    if node.attrs["kind"] != "cross_entropy":
        return {"n": x.size, "rows": x.size // x.shape[0]}
    sizes = split_at(x.shape, node.attrs["axis"])
    sizes["rows"] = sizes["outer"] // x.shape[0]
    return sizes | {"smoothing": node.attrs["smoothing"], "ignore": node.attrs["ignore"]}


class LossForward(Op):
    """partials[192] = 64 chunks of (loss sum, targets, correct); then added to the control."""

    recompute = False

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, t = node.inputs[:2]
        partials = node.outputs[0]
        name = _NAMES[node.attrs["kind"]]
        args = {"x": x, "t": t, "partials": partials, "ctl": "ctl"}
        return [
            Call(f"{name}_loss", args | _sizes(node, graph)),
            Call("loss_total", {"partials": partials, "ctl": "ctl"}),
        ]


class LossBackward(Op):
    """dx = gradient of the scaled loss, over the logits in place."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, t = node.inputs[:2]
        name = _NAMES[node.attrs["kind"]]
        args = {"x": x, "t": t, "dx": node.outputs[0], "ctl": "ctl", "acc": node.attrs["acc"]}
        return [Call(f"{name}_bwd", args | _sizes(node, graph))]

    def inplace(self, node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)


register(LossForward("loss"))
register(LossBackward("loss_bwd"))
