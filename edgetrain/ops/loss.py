"""The loss on the model's output, as two nodes of the graph.

The mean is over all targets that are not ignored. A microbatch's gradient is divided by the
minibatch's nominal target count, so accumulators contain the minibatch's gradient; the update
corrects for ignored targets. Saved: the logits; backward overwrites them.

attrs: kernel, whose `<kernel>_loss` and `<kernel>_bwd` are called, and their scalar operands; if
targets have weights, also `arrays`, the names of operands after output and target; `apart` if the
gradient reads other samples' logits and therefore doesn't overwrite them. With several losses, each
is the `term`-th of `terms`: after the arrays it reads the loss weights and the previous loss's
result, since they add up in order, and its second output is a control block for its gradient.
"""

from collections.abc import Mapping
from typing import Any

from ..ir import Graph, Node
from .registry import Call, Op, register

# Attributes that are not operands of both kernels.
_OWN = ("kernel", "acc", "arrays", "apart", "term", "terms")


def _numbers(node: Node) -> dict[str, Any]:
    return {name: value for name, value in node.attrs.items() if name not in _OWN}


def _arrays(node: Node) -> dict[str, str]:
    names = node.attrs.get("arrays", ())
    return dict(zip(names, node.inputs[2 : 2 + len(names)], strict=True))


def backward_of(attrs: Mapping[str, Any]) -> str:
    """The op of a loss's gradient."""
    return "loss_bwd_apart" if attrs.get("apart") else "loss_bwd"


class LossForward(Op):
    """partials: 64 chunks of (loss sum, targets, correct[, weights]); then added to the control."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, t = node.inputs[:2]
        partials = node.outputs[0]
        args = {"x": x, "t": t, "partials": partials, "ctl": "ctl"}
        loss = Call(f"{node.attrs['kernel']}_loss", args | _arrays(node) | _numbers(node))
        adds: dict[str, Any] = {"partials": partials, "ctl": "ctl"}
        if "term" not in node.attrs:
            total = "weighted_total" if "arrays" in node.attrs else "loss_total"
            return [loss, Call(total, adds)]
        weights = node.inputs[2 + len(node.attrs.get("arrays", ()))]
        adds |= {"w": weights, "own": node.outputs[1], "index": node.attrs["term"]}
        adds |= {"layers": node.attrs["terms"], "weighted": int("arrays" in node.attrs)}
        return [loss, Call("term_total", adds)]

    def vjp(self, grads, node: Node) -> None:
        """Start the gradient of a loss among the forward nodes."""
        if grads.needs(node.inputs[0]):
            inputs = [*node.inputs, *node.outputs[1:]]
            grads.contribute(node.inputs[0], backward_of(node.attrs), inputs, node.attrs)


class LossBackward(Op):
    """dx = gradient of the scaled loss, in place of the logits unless samples are coupled."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, t = node.inputs[:2]
        args = {"x": x, "t": t, "dx": node.outputs[0], "ctl": "ctl", "acc": node.attrs["acc"]}
        if "term" in node.attrs:  # after the loss weights and the previous loss
            behind = 3 + len(node.attrs.get("arrays", ())) + (node.attrs["term"] > 0)
            args["ctl"] = node.inputs[behind]
        return [Call(f"{node.attrs['kernel']}_bwd", args | _arrays(node) | _numbers(node))]


class LossesTotal(Op):
    """The weighted sum of several losses; inputs: their weights, then the result of each."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        args = {"w": node.inputs[0], "ctl": "ctl", "sum": node.outputs[0]}
        return [Call("terms_total", args | {"layers": len(node.inputs) - 1})]

    def vjp(self, grads, node: Node) -> None:
        """Nothing: gradients start at the losses."""


LOSS = register(LossForward("loss", recompute=False))
register(LossBackward("loss_bwd", in_place=((0, 0),)))
register(LossBackward("loss_bwd_apart"))
register(LossesTotal("losses_total", recompute=False))
