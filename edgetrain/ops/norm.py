"""Batch normalisation (statistics, running averages, apply) and layer normalisation.

BatchNormalization becomes three nodes: `bn_stats` makes the small statistics, `bn_running` moves
the running averages (once a microbatch, never in a recompute) and `bn_apply` normalises, so that
apply can be recomputed for next to nothing, or done by its reader (compiler/fusion.py). attrs of
bn_apply: act, lo, hi of an activation that follows. Saved: its input and the statistics.
"""

import re

from ..ir import Graph, Node
from .affine import fits, normalise, operand
from .elementwise import scalar
from .registry import Call, Op, onnx_rule, register
from .strides import prod

# Statistics that the original did not keep, as exporters/torch_graph.py names them.
_UNTRACKED = re.compile(r"no_(mean|variance)_\d+")


def is_tracked(statistic: str) -> bool:
    """Whether a batch-norm has this running statistic; one without takes every batch's own."""
    return _UNTRACKED.fullmatch(statistic) is None


def _ncs(shape) -> dict[str, int]:
    return {"n": shape[0], "c": shape[1], "s": prod(shape[2:])}


def _act(node: Node) -> dict:
    attrs = node.attrs
    return {"act": attrs.get("act", 0), "lo": attrs.get("lo", 0.0), "hi": attrs.get("hi", 0.0)}


class BatchStats(Op):
    """stat[3, c] = mean, 1/sqrt(var + eps), biased variance of x over all but channels."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x = graph.values[node.inputs[0]]
        args = {"x": x.name, "stat": node.outputs[0], "eps": node.attrs["eps"]}
        return [Call("bn_stats", args | _ncs(x.shape))]

    def flops(self, node: Node, graph: Graph) -> int:
        return 4 * graph.values[node.inputs[0]].size

    def vjp(self, grads, node: Node) -> None:
        """Nothing: bn_apply's rule differentiates through the statistics."""


class RunningStats(Op):
    """Move running mean and variance towards the microbatch's, in the staged copies that
    compiler/batch_norm.py gives it as outputs."""

    recompute = False

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        stat, mean, variance = node.inputs
        args = {"stat": stat, "rm": mean, "rv": variance, "momentum": node.attrs["momentum"]}
        args |= dict(zip(("sm", "sv"), node.outputs, strict=True)) | {"ctl": "ctl"}
        args |= {"c": graph.values[mean].size, "count": node.attrs["count"]}
        return [Call("bn_running", args)]

    def vjp(self, grads, node: Node) -> None:
        """Buffers have no gradient."""


class EvalStats(Op):
    """stat[3, c] from the running averages."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        mean, variance = node.inputs
        args = {"rm": mean, "rv": variance, "stat": node.outputs[0], "eps": node.attrs["eps"]}
        return [Call("bn_eval_stats", args | {"c": graph.values[mean].size})]

    def vjp(self, grads, node: Node) -> None:
        """Buffers have no gradient."""


class BatchApply(Op):
    """y = act(gamma * (x - mean) * invstd + beta); inputs x, stat, gamma, beta.

    attrs: frozen, where stat is of the running averages and does not depend on x.
    """

    in_place = ((0, 0),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, stat, gamma, beta = node.inputs
        args = {"x": x, "stat": stat, "gamma": gamma or None, "beta": beta or None}
        args |= {"y": node.outputs[0]}
        return [Call("bn_apply", args | _ncs(graph.values[x].shape) | _act(node))]

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        x, stat, gamma, beta = node.inputs
        if not dy or not any(grads.needs(n) for n in (x, gamma, beta) if n):
            return
        attrs = _act(node)
        frozen = node.attrs.get("frozen", False)
        accumulators = [grads.accumulator(n) for n in (gamma, beta)]
        sums = grads.temporary(f"{node.name}.sums", (2, grads.value(stat).shape[1]))
        if any(accumulators) or not frozen:
            grads.emit("bn_reduce", [x, stat, gamma, beta, dy], [sums, *accumulators], attrs)
        if grads.needs(x) and frozen:
            # Without an activation the map is affine: its gradient does not read x.
            source = x if attrs["act"] else dy
            grads.contribute(x, "bn_dx_eval", [source, stat, gamma, beta, "", dy], attrs)
        elif grads.needs(x):
            grads.contribute(x, "bn_dx", [x, stat, gamma, beta, sums, dy], attrs)

    def flops(self, node: Node, graph: Graph) -> int:
        return 2 * graph.values[node.inputs[0]].size


class BatchReduce(Op):
    """sums[2, c] = sum dz, sum dz * xhat; accumulators of gamma and beta += them."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, stat, gamma, beta, dy = node.inputs
        sums, dgamma, dbeta = node.outputs
        args = {"x": x, "stat": stat, "gamma": gamma or None, "beta": beta or None, "dy": dy}
        args |= {"sums": sums, "dgamma": dgamma or None, "dbeta": dbeta or None}
        return [Call("bn_reduce", args | _ncs(graph.values[x].shape) | _act(node))]

    def flops(self, node: Node, graph: Graph) -> int:
        return 5 * graph.values[node.inputs[0]].size


class BatchInputGrad(Op):
    """dx (+)= gradient through normalisation and statistics; may overwrite dy."""

    in_place = ((0, 5),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, stat, gamma, beta, sums, dy = node.inputs[:6]
        args = {"x": x, "stat": stat, "gamma": gamma or None, "beta": beta or None, "dy": dy}
        args |= {"dx": node.outputs[0], "acc": node.attrs["acc"]}
        if self.name == "bn_dx":
            args["sums"] = sums
        return [Call(self.name, args | _ncs(graph.values[x].shape) | _act(node))]

    def flops(self, node: Node, graph: Graph) -> int:
        return 6 * graph.values[node.inputs[0]].size


class LayerNorm(Op):
    """Normalise rows of n elements; outputs y, stat[2, rows]; inputs x, gamma, beta."""

    in_place = ((0, 0),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, gamma, beta = node.inputs
        y, stat = node.outputs
        n = node.attrs["n"]
        args = {"x": x, "gamma": gamma or None, "beta": beta or None, "y": y, "stat": stat}
        rows = graph.values[x].size // n
        return [Call("layer_norm", args | {"rows": rows, "n": n, "eps": node.attrs["eps"]})]

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        x, gamma, beta = node.inputs
        if not dy:
            return
        stat, n = node.outputs[1], node.attrs["n"]
        accumulators = [grads.accumulator(name) for name in (gamma, beta)]
        if any(accumulators):
            grads.emit("layer_norm_dparam", [x, stat, dy], accumulators, {"n": n})
        if grads.needs(x):
            grads.contribute(x, "layer_norm_dx", [x, gamma, stat, dy], {"n": n})

    def flops(self, node: Node, graph: Graph) -> int:
        return 6 * graph.values[node.inputs[0]].size


class LayerNormInputGrad(Op):
    """dx (+)= gradient of the rows; may overwrite dy."""

    in_place = ((0, 3),)

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, gamma, stat, dy = node.inputs[:4]
        n = node.attrs["n"]
        args = {"x": x, "gamma": gamma or None, "stat": stat, "dy": dy, "dx": node.outputs[0]}
        args |= {"rows": graph.values[x].size // n, "n": n, "acc": node.attrs["acc"]}
        return [Call("layer_norm_dx", args)]


class LayerNormParamGrad(Op):
    """Accumulators of gamma and beta += column sums."""

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        x, stat, dy = node.inputs
        dgamma, dbeta = node.outputs
        n = node.attrs["n"]
        args = {"x": x, "stat": stat, "dy": dy, "dgamma": dgamma or None, "dbeta": dbeta or None}
        return [Call("layer_norm_dparam", args | {"rows": graph.values[x].size // n, "n": n})]


for _op in (
    BatchStats("bn_stats"),
    RunningStats("bn_running"),
    EvalStats("bn_eval_stats"),
    BatchApply("bn_apply"),
    BatchReduce("bn_reduce"),
    BatchInputGrad("bn_dx"),
    BatchInputGrad("bn_dx_eval"),
    LayerNorm("layer_norm"),
    LayerNormInputGrad("layer_norm_dx"),
    LayerNormParamGrad("layer_norm_dparam"),
):
    register(_op)


@onnx_rule("BatchNormalization", weights=(1, 2), buffers=(3, 4))
def batch_normalization(context, node) -> None:
    """Trained with batch statistics whatever mode the file was exported in; where its parameters
    are frozen compiler/batch_norm.py makes it run on its running ones.

    ONNX's running statistics use momentum = 1 - torch's and the biased variance; torch's meaning
    (unbiased) is what is computed.
    """
    x, gamma, beta, mean, variance = (context.value(node, k) for k in range(5))
    channels = x.shape[1] if len(x.shape) > 1 else 0
    if any(v.shape != (channels,) for v in (gamma, beta, mean, variance)):
        raise node.fail(f"{channels} channels and scale of shape {list(gamma.shape)}", "one each")
    count = x.size // channels
    eps = float(node.attrs.get("epsilon", 1e-5))
    stat = context.temporary(node, "stat", (3, channels), role="statistic")
    context.emit(node, "bn_stats", [x], [(3, channels)], {"eps": eps}, outputs=[stat])
    moving = {"momentum": 1.0 - float(node.attrs.get("momentum", 0.9)), "count": count}
    context.emit(node, "bn_running", [stat, mean, variance], [], moving, outputs=[])
    context.emit(node, "bn_apply", [x, stat, gamma, beta], [x.shape])
    for k, statistic in ((1, mean), (2, variance)):
        if node.outputs[k : k + 1] not in ((), ("",)):  # a second application reads what it moved
            context.bind(node, k, statistic.name)


@onnx_rule("LayerNormalization", weights=(1, 2))
def layer_normalization(context, node) -> None:
    x = context.value(node, 0)
    scale, bias = operand(context, node, 1, 1.0), operand(context, node, 2, 0.0)
    axis = node.axis(node.attrs.get("axis", -1), len(x.shape))
    n = prod(x.shape[axis:])
    for value in (scale, bias):
        if value and (len(value.shape) > len(x.shape) or not fits(value.shape, x.shape)):
            raise node.fail(
                f"scale or bias of shape {list(value.shape)}", f"{list(x.shape[axis:])}"
            )
    eps = float(node.attrs.get("epsilon", 1e-5))
    attrs, stat = {"n": n, "eps": eps}, (2, x.size // n)
    normalise(context, node, "layer_norm", x, [scale, bias], n, stat, attrs)
    if any(node.outputs[1:]):
        _row_statistics(context, node, x, axis, eps)


def _row_statistics(context, node, x, axis: int, eps: float) -> None:
    """The outputs Mean and InvStdDev, as nodes that gradients flow through."""
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
