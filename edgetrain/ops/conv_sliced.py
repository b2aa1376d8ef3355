"""A convolution, batch norm and depthwise convolution, a few channels at a time.

Batch norm and depthwise convolutions don't mix channels, so the wide map in between never needs to
exist as a whole. Only used if nothing is saved for backward; inserted by compiler/passes/slicing.py
after autodiff. Statistics are still those of the whole microbatch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..ir import Call, Graph, Node, Value
from .conv import CONV
from .registry import Op, register
from .strides import prod


class ConvSliced(Op):
    """y = depthwise(act(batch_norm(conv(prologue(x), w) + bias))) + bias2.

    Inputs: the six of conv; gamma, beta, running mean and variance; weight and bias of the
    depthwise convolution. Outputs: y; map[n, channels, h, w] and stat[3, channels] of the current
    channels, unused afterwards; staged copies of both running statistics, if it updates them.
    attrs: first, second (attrs of the convolutions), eps, momentum, count; moving: use batch
    statistics and update the running ones, instead of using the running ones.
    """

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

    def arranged(self, node: Node, graph: Graph) -> Mapping[str, int]:
        """Every slice rearranges the windows of the first convolution again."""
        w, second, y = (graph.values[n] for n in (node.inputs[1], node.inputs[10], node.outputs[0]))
        part = graph.values[node.outputs[1]]
        slices = -(-w.shape[0] // part.shape[1])
        pixels = part.size // part.shape[1]
        first = slices * pixels * prod(w.shape[1:])
        return {"maps": first, "planes": y.size * prod(second.shape[1:])}


def _part(node: Node, graph: Graph, shapes: Mapping[str, Sequence[int]]) -> Call:
    """Call of a convolution on pieces of values, with these shapes."""
    whole = {name: graph.values[name] for name in (*node.reads, *node.writes)}
    pieces = {name: replace(whole[name], shape=tuple(shape)) for name, shape in shapes.items()}
    return CONV.call(node, replace(graph, values=whole | pieces))


def _expand(node: Node, graph: Graph, piece: Value, start: int) -> Call:
    _, w, bias = node.inputs[:3]
    rows = graph.values[w].shape[1:]
    own = replace(node, inputs=node.inputs[:6], outputs=(piece.name,), attrs=node.attrs["first"])
    call = _part(own, graph, {piece.name: piece.shape, w: (piece.shape[1], *rows)})
    return replace(call, skip={"w": start * prod(rows)} | _bias(bias, start))


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
    """One call per sample: a sample's channels are contiguous in y, those of all samples are
    not."""
    gamma, beta, _, _, w, bias = node.inputs[6:12]
    weight, y = graph.values[w], graph.values[node.outputs[0]]
    count = piece.shape[1]
    own = replace(
        node,
        inputs=(piece.name, w, bias, node.outputs[2], gamma, beta),
        outputs=(y.name,),
        attrs={**node.attrs["second"], "g": count},
    )
    shapes = {v.name: (1, count, *v.shape[2:]) for v in (piece, y)}
    call = _part(own, graph, {**shapes, w: (count, *weight.shape[1:])})
    one = prod(shapes[piece.name])
    fixed = {"w": start * prod(weight.shape[1:])} | _bias(bias, start)
    fixed |= {key: start for key, name in (("gamma", gamma), ("beta", beta)) if name}
    pixels = prod(y.shape[2:])
    for sample in range(piece.shape[0]):
        where = {"x": sample * one, "y": (sample * y.shape[1] + start) * pixels}
        yield replace(call, skip=fixed | where)


def _bias(name: str, start: int) -> dict[str, int]:
    return {"bias": start} if name else {}


register(ConvSliced("conv_sliced", recompute=False))  # it updates running statistics
