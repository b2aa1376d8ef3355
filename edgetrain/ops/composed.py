"""ONNX ops that others express: OneHot, Hardmax, Col2Im, LpNormalization, ReverseSequence, ...

Each rule lists replacement nodes, which the context runs like nodes from a file.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .onnx_ops import OnnxNode, Subgraph, axes_from, axis_of, images, onnx_rule


class Nodes:
    """The nodes that replace one node, and their constants."""

    def __init__(self, context, node: OnnxNode) -> None:
        self._context, self._node = context, node
        self._nodes: list[OnnxNode] = []
        self._arrays: dict[str, np.ndarray] = {}

    def constant(self, tag: str, array: Any) -> str:
        """Add a constant and return its name."""
        name = self._context.label(self._node, tag)
        self._arrays[name] = np.asarray(array)
        return name

    def add(self, tag: str, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """Add a node and return the name of its output; tag "" means the output of the replaced
        node."""
        out = self._context.label(self._node, tag) if tag else self._node.outputs[0]
        self._nodes.append(OnnxNode(self._node.name, op, tuple(inputs), (out,), attrs))
        return out

    def run(self, *outputs: str) -> None:
        """Run the nodes that these values need; by default, those of the replaced node's output."""
        outputs = outputs or (self._node.outputs[0],)
        self._context.inline(Subgraph(tuple(self._nodes), self._arrays, outputs))


def _range(size: int, axis: int, rank: int, kind=np.int64) -> np.ndarray:
    """0, 1, ... along one axis of `rank`."""
    return np.arange(size, dtype=kind).reshape([-1 if k == axis else 1 for k in range(rank)])


@onnx_rule("OneHot", settings=(1, 2))
def one_hot(context, node) -> None:
    """values[1] where the position along a new axis equals the element's index, else values[0]."""
    indices, depth = context.value(node, 0), context.ints(node, 1)
    if not depth or len(depth) != 1 or depth[0] < 1:
        raise node.fail(f"depth {depth}", "a constant above 0")
    rank, size = len(indices.shape) + 1, depth[0]
    context.room(node, size * indices.size, weight=4)
    axis, nodes = node.axis(node.attrs.get("axis", -1), rank), Nodes(context, node)
    kind = np.float32 if indices.dtype == "f32" else np.int64
    places = _range(size, axis, rank, kind)
    count = nodes.constant("axis", [axis])
    index = nodes.add("index", "Unsqueeze", [node.inputs[0], count])
    same = [
        nodes.add(f"is{k}", "Equal", [index, nodes.constant(f"place{k}", found)])
        for k, found in enumerate((places, places - kind(size)))  # negative: from the end
    ]
    sides = []
    for k, tag in enumerate(("off", "on")):
        spot = nodes.constant(f"{tag}.index", k)
        sides.append(nodes.add(tag, "Gather", [node.inputs[2], spot], axis=0))
    found = nodes.add("is", "Or", same)
    nodes.add("", "Where", [found, sides[1], sides[0]])
    nodes.run()


@onnx_rule("Hardmax", joined=axes_from("compared"))
def hardmax(context, node) -> None:
    """1 at the first maximum along an axis, else 0."""
    x, nodes = context.value(node, 0), Nodes(context, node)
    rank = len(x.shape)
    old = context.opset < 13  # all axes from `axis` on formed one
    axis = node.axis(node.attrs.get("axis", 1 if old else -1), rank)
    source, line = node.inputs[0], x.shape
    if old:
        line = (int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))
        source = nodes.add("rows", "Reshape", [source, nodes.constant("lines", line)])
        axis = 1
    best = nodes.add("best", "ArgMax", [source], axis=axis, keepdims=1)
    places = nodes.constant("places", _range(line[axis], axis, len(line)))
    result = nodes.add("is", "Equal", [best, places])
    number = nodes.add("number" if old else "", "Cast", [result], to=1)
    if old:
        nodes.add("", "Reshape", [number, nodes.constant("shape", x.shape)])
    nodes.run()


@onnx_rule("Shrink")
def shrink(context, node) -> None:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    known, nodes = context.const(node, 0), Nodes(context, node)
    floats = context.value(node, 0).dtype == "f32" if known is None else known.dtype.kind == "f"
    kind = np.float32 if floats else np.int64
    limit, bias = (kind(node.attrs.get(key, other)) for key, other in (("lambd", 0.5), ("bias", 0)))
    x, zero = node.inputs[0], nodes.constant("zero", kind(0))
    by = nodes.constant("bias", bias)
    below = nodes.add("below", "Less", [x, nodes.constant("low", -limit)])
    above = nodes.add("above", "Greater", [x, nodes.constant("high", limit)])
    less = nodes.add("less", "Sub", [x, by])
    rest = nodes.add("rest", "Where", [above, less, zero])
    nodes.add("", "Where", [below, nodes.add("more", "Add", [x, by]), rest])
    nodes.run()


@onnx_rule("Col2Im", joined=images)
def col2im(context, node) -> None:
    """Add overlapping blocks [samples, channels * block, count], by a transposed convolution whose
    weights are 1 for a block's own element."""
    x, image, block = context.value(node, 0), context.ints(node, 1), context.ints(node, 2)
    if image is None or block is None or len(image) != len(block) or len(x.shape) != 3:
        raise node.fail(f"blocks {block}, image {image}", "constant sizes, as many of each")
    rank, taps = len(block), int(np.prod(block))
    strides, dilations = (list(node.attrs.get(k, [1] * rank)) for k in ("strides", "dilations"))
    pads = list(node.attrs.get("pads", [0] * 2 * rank))
    if len(pads) != 2 * rank or not len(strides) == len(dilations) == rank or min(strides) < 1:
        raise node.fail(f"pads {pads}, strides {strides}, dilations {dilations}", f"{rank} axes")
    reach = [dilations[k] * (block[k] - 1) + 1 for k in range(rank)]
    room = [image[k] + pads[k] + pads[k + rank] - reach[k] for k in range(rank)]
    counts = [room[k] // strides[k] + 1 for k in range(rank)]
    if min(room) < 0 or x.shape[1] % taps or x.shape[2] != np.prod(counts):
        raise node.fail(f"blocks of shape {list(x.shape)}", f"{counts} blocks of {taps} elements")
    channels = x.shape[1] // taps
    context.room(node, x.shape[1] * taps, weight=4)
    nodes = Nodes(context, node)
    shape = nodes.constant("grid", [x.shape[0], x.shape[1], *counts])
    blocks = nodes.add("blocks", "Reshape", [node.inputs[0], shape])
    ones = np.tile(np.eye(taps, dtype=np.float32), (channels, 1)).reshape(-1, 1, *block)
    attrs = {"strides": strides, "dilations": dilations, "pads": pads, "kernel_shape": block}
    attrs |= {"group": channels, "output_padding": [room[k] % strides[k] for k in range(rank)]}
    nodes.add("", "ConvTranspose", [blocks, nodes.constant("ones", ones)], **attrs)
    nodes.run()


@onnx_rule("LpNormalization", joined=axis_of(-1, "normalised over"))
def lp_normalization(context, node) -> None:
    """x divided by its norm along an axis; 0 if the norm is 0."""
    x, nodes, p = context.value(node, 0), Nodes(context, node), node.attrs.get("p", 2)
    if p not in (1, 2):
        raise node.fail(f"p {p}", "1 or 2")
    axis = node.axis(node.attrs.get("axis", -1), len(x.shape))
    axes = nodes.constant("axes", [axis])
    op = f"ReduceL{p}"
    if context.opset < 18:
        norm = nodes.add("norm", op, [node.inputs[0]], axes=[axis], keepdims=1)
    else:
        norm = nodes.add("norm", op, [node.inputs[0], axes], keepdims=1)
    zero = nodes.add("zero", "Equal", [norm, nodes.constant("none", np.float32(0))])
    safe = nodes.add("safe", "Where", [zero, nodes.constant("one", np.float32(1)), norm])
    nodes.add("", "Div", [node.inputs[0], safe])
    nodes.run()


def _reversed(context, node: OnnxNode, rank: int) -> tuple[tuple[int, ...], str]:
    return (node.axis(node.attrs.get("time_axis", 0), rank),), "the axis of time"


@onnx_rule("ReverseSequence", weights=(0,), moves=True, joined=_reversed)
def reverse_sequence(context, node) -> None:
    """Reverse the first steps of each sample, as many as its length."""
    x, lengths, nodes = context.value(node, 0), context.value(node, 1), Nodes(context, node)
    rank = len(x.shape)
    time = node.axis(node.attrs.get("time_axis", 0), rank)
    batch = node.axis(node.attrs.get("batch_axis", 1), rank)
    if time == batch or lengths.shape != (x.shape[batch],):
        raise node.fail(
            f"lengths of shape {list(lengths.shape)}, time axis {time}, batch axis {batch}",
            f"lengths of shape {[x.shape[batch]]} and two axes",
        )
    shape = [x.shape[batch] if k == batch else 1 for k in range(rank)]
    counts = nodes.add("counts", "Reshape", [node.inputs[1], nodes.constant("shape", shape)])
    steps = nodes.constant("steps", _range(x.shape[time], time, rank))
    last = nodes.add("last", "Sub", [counts, nodes.constant("one", np.int64(1))])
    back = nodes.add("back", "Sub", [last, steps])
    within = nodes.add("within", "Less", [steps, counts])
    places = nodes.add("places", "Where", [within, back, steps])
    every = nodes.add("every", "Expand", [places, nodes.constant("size", x.shape)])
    nodes.add("", "GatherElements", [node.inputs[0], every], axis=time)
    nodes.run()


def _positions(context, node: OnnxNode, rank: int) -> tuple[range, str]:
    return range(1, rank), "an axis of positions or channels"


@onnx_rule("RotaryEmbedding", settings=(1, 2), joined=_positions)
def rotary_embedding(context, node) -> None:
    """Rotate pairs of channels by the angles of their position; channels after the first
    `rotary_embedding_dim` are unchanged. Source: Su et al. 2021, RoFormer."""
    x, nodes = context.value(node, 0), Nodes(context, node)
    source, channels = _by_head(node, x.shape, nodes)
    turned = node.attrs.get("rotary_embedding_dim", 0) or channels
    if turned % 2 or turned > channels:
        raise node.fail(f"rotary_embedding_dim {turned}", f"an even number up to {channels}")

    def part(tag: str, start: int, stop: int, step: int = 1) -> str:
        bounds = [nodes.constant(f"{tag}{k}", [n]) for k, n in enumerate((start, stop, -1, step))]
        return nodes.add(tag, "Slice", [source, *bounds])

    def angles(index: int, tag: str) -> str:
        table = node.inputs[index]
        if context.has(node, 3):
            table = nodes.add(f"{tag} rows", "Gather", [table, node.inputs[3]], axis=0)
        return nodes.add(tag, "Unsqueeze", [table, nodes.constant(f"{tag} axis", [1])])

    beside = bool(node.attrs.get("interleaved", 0))  # pairs are neighbouring channels
    if beside:
        one, two = part("even", 0, turned, 2), part("odd", 1, turned, 2)
    else:
        one, two = part("low", 0, turned // 2), part("high", turned // 2, turned)
    pair = _turned(nodes, one, two, angles(1, "cos"), angles(2, "sin"))
    if beside:
        last = nodes.constant("last", [-1])
        pair = [nodes.add(f"column{k}", "Unsqueeze", [x, last]) for k, x in enumerate(pair)]
        rows = nodes.add("rows", "Concat", pair, axis=-1)
        pair = [nodes.add("turned", "Reshape", [rows, nodes.constant("row", [0, 0, 0, turned])])]
    if turned < channels:
        pair.append(part("rest", turned, channels))
    if len(x.shape) == 4:
        nodes.add("", "Concat", pair, axis=-1)
    else:
        whole = nodes.add("whole", "Concat", pair, axis=-1)
        back = nodes.add("steps", "Transpose", [whole], perm=[0, 2, 1, 3])
        nodes.add("", "Reshape", [back, nodes.constant("shape", list(x.shape))])
    nodes.run()


def _by_head(node: OnnxNode, shape: Sequence[int], nodes: Nodes) -> tuple[str, int]:
    """(the input as [batch, heads, steps, channels], channels per head)."""
    if len(shape) == 4:
        return node.inputs[0], shape[3]
    heads = node.attrs.get("num_heads", 0)
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise node.fail(
            f"shape {list(shape)} and num_heads {heads}", "4 dimensions, or 3 and a divisor"
        )
    split = nodes.constant("split", [*shape[:2], heads, shape[2] // heads])
    apart = nodes.add("heads", "Reshape", [node.inputs[0], split])
    return nodes.add("by head", "Transpose", [apart], perm=[0, 2, 1, 3]), shape[2] // heads


def _turned(nodes: Nodes, one: str, two: str, cos: str, sin: str) -> list[str]:
    """one * cos - two * sin, one * sin + two * cos."""

    def product(tag: str, a: str, b: str) -> str:
        return nodes.add(tag, "Mul", [a, b])

    real = [product("one cos", one, cos), product("two sin", two, sin)]
    imaginary = [product("one sin", one, sin), product("two cos", two, cos)]
    return [nodes.add("real", "Sub", real), nodes.add("imaginary", "Add", imaginary)]
