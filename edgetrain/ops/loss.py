"""The loss on the model's output: whatever losses/ has, as two nodes of the graph.

The mean is over all targets that are not ignored. Inside a tape the gradient of a microbatch is
divided by the minibatch's nominal count, so that accumulators hold the minibatch's gradient; what
was ignored is corrected by the update. Saved: the logits; backward overwrites them.

attrs: kernel, whose `<kernel>_loss` and `<kernel>_bwd` are called, and their scalar operands; where
targets have weights also `arrays`, names of the operands behind output and target.
"""

from typing import Any

from ..ir import Graph, Node
from .registry import Call, Op, register

_OWN = ("kernel", "acc", "arrays")  # attributes that are no operands of both


def _numbers(node: Node) -> dict[str, Any]:
    return {name: value for name, value in node.attrs.items() if name not in _OWN}


def _arrays(node: Node) -> dict[str, str]:
    return dict(zip(node.attrs.get("arrays", ()), node.inputs[2:], strict=True))


class LossForward(Op):
    """partials: 64 chunks of (loss sum, targets, correct[, weights]); then added to the control."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, t = node.inputs[:2]
        partials = node.outputs[0]
        args = {"x": x, "t": t, "partials": partials, "ctl": "ctl"}
        total = "weighted_total" if "arrays" in node.attrs else "loss_total"
        return [
            Call(f"{node.attrs['kernel']}_loss", args | _arrays(node) | _numbers(node)),
            Call(total, {"partials": partials, "ctl": "ctl"}),
        ]

    def vjp(self, grads, node: Node) -> None:
        """Of a loss among the nodes of forward: what the gradient of its operand begins with."""
        if grads.needs(node.inputs[0]):
            grads.contribute(node.inputs[0], "loss_bwd", node.inputs, dict(node.attrs))


class LossBackward(Op):
    """dx = gradient of the scaled loss, over the logits in place."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, t = node.inputs[:2]
        args = {"x": x, "t": t, "dx": node.outputs[0], "ctl": "ctl", "acc": node.attrs["acc"]}
        return [Call(f"{node.attrs['kernel']}_bwd", args | _arrays(node) | _numbers(node))]


LOSS = register(LossForward("loss", recompute=False))
register(LossBackward("loss_bwd", in_place=((0, 0),)))
