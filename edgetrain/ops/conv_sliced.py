"""A convolution, its batch norm and the depthwise convolution behind it, some channels at a time.

Neither batch norm nor a depthwise convolution mixes channels, so the wide map between the two
convolutions need never exist whole. Only for what keeps nothing for backward; made by
compiler/slicing.py after autodiff. Statistics are still those of the whole microbatch.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..ir import Call, Graph, Node, Value
from .conv import conv_sizes, prologue
from .registry import Op, register
from .strides import prod


class ConvSliced(Op):
    """y = depthwise(act(batch_norm(conv(prologue(x), w) + bias))) + bias2.

    Inputs: the six of conv; gamma, beta, running mean and variance; the weight and bias of the
    depthwise one. Outputs: y; map[n, channels, h, w] and stat[3, channels] of the channels at
    work, dead afterwards; where it moves the running statistics, the staged copies of both.
    attrs: first, second (attrs of the convolutions), eps, momentum, count; moving: whether batch
    statistics are taken and the running ones moved, or the latter used.
    """

    recompute = False  # it moves running statistics

    def lower(self, node: Node, graph: Graph) -> list[Call]:
        part = graph.values[node.outputs[1]]
        every = graph.values[node.inputs[1]].shape[0]
        calls: list[Call] = []
        for start in range(0, every, part.shape[1]):
            count = min(part.shape[1], every - start)
            piece = replace(part, shape=(part.shape[0], count, *part.shape[2:]))
            calls.append(_expand(node, graph, piece, start))
            calls.extend(_statistics(node, piece, start))
            calls.extend(_depthwise(node, graph, piece, start))
        return calls

    def flops(self, node: Node, graph: Graph) -> int:
        w, second, y = (graph.values[n] for n in (node.inputs[1], node.inputs[10], node.outputs[0]))
        part = graph.values[node.outputs[1]]
        wide = part.size // part.shape[1] * w.shape[0]
        return wide * (2 * prod(w.shape[1:]) + 4) + 2 * y.size * prod(second.shape[1:])


def _expand(node: Node, graph: Graph, piece: Value, start: int) -> Call:
    x, w = (graph.values[n] for n in node.inputs[:2])
    own = replace(node, attrs=node.attrs["first"])
    weight = replace(w, shape=(piece.shape[1], *w.shape[1:]))
    args = {"x": x.name, "w": w.name, "bias": node.inputs[2] or None, "y": piece.name}
    args |= prologue(own, 3) | conv_sizes(own, x, weight, piece)
    return Call("conv", args, {"w": start * prod(w.shape[1:])} | _bias(node.inputs[2], start))


def _statistics(node: Node, piece: Value, start: int) -> Iterator[Call]:
    stat, (mean, variance) = node.outputs[2], node.inputs[8:10]
    channels = {"c": piece.shape[1]}
    running = {"rm": mean, "rv": variance}
    skip = {"rm": start, "rv": start}
    eps = node.attrs["eps"]
    if not node.attrs["moving"]:
        yield Call("bn_eval_stats", running | {"stat": stat, "eps": eps} | channels, skip)
        return
    sizes = {"n": piece.shape[0], "s": prod(piece.shape[2:])} | channels
    yield Call("bn_stats", {"x": piece.name, "stat": stat, "eps": eps} | sizes)
    moving = {key: node.attrs[key] for key in ("momentum", "count")} | {"ctl": "ctl"}
    staged = dict(zip(("sm", "sv"), node.outputs[3:], strict=True))
    skip |= dict.fromkeys(staged, start)
    yield Call("bn_running", running | staged | {"stat": stat} | moving | channels, skip)


def _depthwise(node: Node, graph: Graph, piece: Value, start: int) -> Iterator[Call]:
    """One call a sample: the channels of a sample lie together in y, those of all do not."""
    gamma, beta, _, _, w, bias = node.inputs[6:12]
    weight, y = graph.values[w], graph.values[node.outputs[0]]
    count = piece.shape[1]
    own = replace(
        node,
        inputs=(piece.name, w, bias, node.outputs[2], gamma, beta),
        attrs={**node.attrs["second"], "g": count},
    )
    one, out = (replace(v, shape=(1, count, *v.shape[2:])) for v in (piece, y))
    args: dict[str, Any] = {"x": piece.name, "w": w, "bias": bias or None, "y": y.name}
    args |= prologue(own, 3)
    args |= conv_sizes(own, one, replace(weight, shape=(count, *weight.shape[1:])), out)
    fixed = {"w": start * prod(weight.shape[1:])} | _bias(bias, start)
    fixed |= {key: start for key, name in (("gamma", gamma), ("beta", beta)) if name}
    pixels = prod(y.shape[2:])
    for sample in range(piece.shape[0]):
        where = {"x": sample * one.size, "y": (sample * y.shape[1] + start) * pixels}
        yield Call("conv", args, fixed | where)


def _bias(name: str, start: int) -> dict[str, int]:
    return {"bias": start} if name else {}


register(ConvSliced("conv_sliced"))
