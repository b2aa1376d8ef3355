"""Batch normalisation. Saved: the input and the statistics.

BatchNormalization becomes three nodes: `bn_stats` computes the small statistics, `bn_running`
updates the running averages (once per microbatch, never when recomputed) and `bn_apply` normalises.
So bn_apply is cheap to recompute, and can be merged into its reader (compiler/passes/fusion.py).
attrs of bn_apply: act, lo, hi of an activation that follows.
"""

from typing import Any

from ..ir import Node
from ..units.statistics import is_tracked
from . import samples
from .affine import affinely
from .onnx_ops import AFFINE, WEIGHT_AND_BIAS, images, onnx_rule
from .registry import Op, register
from .strides import channels

# Statistics missing in the original module, as named by exporters/torch_graph.py.
_NO_ACT = {"act": 0, "lo": 0.0, "hi": 0.0}


class BatchApply(Op):
    """y = act(gamma * (x - mean) * invstd + beta); inputs x, stat, gamma, beta.

    attrs: frozen: stat comes from running averages and does not depend on x.
    """

    def vjp(self, grads, node: Node) -> None:
        dy = grads.of(node.outputs[0])
        x, stat, gamma, beta = node.inputs
        if not dy or not any(grads.needs(n) for n in (x, gamma, beta) if n):
            return
        attrs = {key: node.attrs.get(key, usual) for key, usual in _NO_ACT.items()}
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


def _running(values, attrs) -> dict[str, int]:
    return {"c": values["rm"].size}


_X = "x stat gamma beta"
_INPUT: dict[str, Any] = {"in_place": ((0, 5),), "reads_rounded": True}
for _op in (
    # stat[3, c] = mean, 1/sqrt(var + eps), biased variance of x over all but channels; bn_apply's
    # rule differentiates through them.
    Op("bn_stats", "x -> stat", channels, cost=4, gradient="", samples=samples.statistics),
    # Move running mean and variance towards the microbatch's, in staged copies that
    # compiler/passes/batch_norm.py adds as outputs.
    Op("bn_running", "stat rm rv -> sm sv", _running, gradient="", recompute=False),
    # stat[3, c] from the running averages.
    Op("bn_eval_stats", "rm rv -> stat", _running, gradient=""),
    BatchApply(
        "bn_apply", f"{_X} -> y", channels, cost=2, in_place=((0, 0),), samples=samples.images
    ),
    # sums[2, c] = sum dz, sum dz * xhat; accumulators of gamma and beta += them.
    Op("bn_reduce", f"{_X} dy -> sums dgamma dbeta", channels, cost=5, reads_rounded=True),
    # dx (+)= gradient through normalisation and statistics; may overwrite dy.
    Op("bn_dx", f"{_X} sums dy -> dx", channels, cost=6, **_INPUT),
    Op("bn_dx_eval", f"{_X} - dy -> dx", channels, cost=6, **_INPUT),
):
    register(_op)


@onnx_rule(
    "BatchNormalization",
    **AFFINE,
    buffers=(3, 4),
    joined=images,
    names=WEIGHT_AND_BIAS | {3: "running_mean", 4: "running_var"},
)
def batch_normalization(context, node) -> None:
    """Uses batch statistics in training, regardless of the exported mode; with frozen parameters,
    compiler/passes/batch_norm.py switches it to running statistics.

    ONNX uses momentum = 1 - torch's and the biased variance for running statistics; edgetrain uses
    the unbiased variance, like torch.
    """
    x, gamma, beta, mean, variance = (context.value(node, k) for k in range(5))
    channels = x.shape[1] if len(x.shape) > 1 else 0
    if any(v.shape != (channels,) for v in (gamma, beta, mean, variance)):
        raise node.fail(
            f"{channels} channels, scale shape {list(gamma.shape)}", "one value per channel"
        )
    count = x.size // channels
    eps = float(node.attrs.get("epsilon", 1e-5))
    stat = context.temporary(node, "stat", (3, channels), role="statistic")
    if "constant" not in (mean.role, variance.role):
        context.emit(node, "bn_stats", [x], [(3, channels)], {"eps": eps}, outputs=[stat])
        moving = {"momentum": 1.0 - float(node.attrs.get("momentum", 0.9)), "count": count}
        context.emit(node, "bn_running", [stat, mean, variance], [], moving, outputs=[])
    elif is_tracked(mean.name):  # statistics that can't be updated
        given = [mean, variance]
        context.emit(node, "bn_eval_stats", given, [(3, channels)], {"eps": eps}, outputs=[stat])
    elif count < 2:
        raise node.fail("one value per channel", "at least two")
    else:
        context.emit(node, "bn_stats", [x], [(3, channels)], {"eps": eps}, outputs=[stat])
    frozen = "constant" in (mean.role, variance.role) and is_tracked(mean.name)
    _apply(context, node, x, stat, gamma, beta, {"frozen": True} if frozen else None)
    for k, statistic in ((1, mean), (2, variance)):
        if node.outputs[k : k + 1] not in ((), ("",)):  # a second use reads the updated ones
            context.bind(node, k, statistic.name)


def _apply(context, node, x, stat: str, gamma, beta, attrs) -> None:
    """The kernel applies scale and shift unless they are computed (for example in weight
    standardisation), because then their gradients are needed as values."""
    if not any(value.role == "activation" for value in (gamma, beta)):
        context.emit(node, "bn_apply", [x, stat, gamma, beta], [x.shape], attrs)
        return
    y = context.temporary(node, "normal", x.shape)
    context.emit(node, "bn_apply", [x, stat, "", ""], [x.shape], attrs, outputs=[y])
    along = (1, x.shape[1], *[1] * (len(x.shape) - 2))
    shift = context.array(beta.name)
    # A missing shift is stored as zeros.
    added = [] if shift is not None and not shift.any() else [("add", beta)]
    affinely(context, node, context.named(y), [("mul", gamma), *added], along)
