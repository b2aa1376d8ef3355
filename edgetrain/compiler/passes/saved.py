"""Saved values in blocks of 8 bits: forward computes with what it stored, backward with roundings.

What the backward of convolutions, matrix products, norms and activations reads is packed when
forward has read it last, and unpacked right before each of its readers, or once for readers that
follow each other. A value that any other op reads in backward stays as it is, and so does the
model's input. So do queries, keys, values and output of attention by blocks: its backward makes the
weights again beside the exact sums of their softmax, and where a head attends sharply the rest of
two large sums that nearly cancel is the gradient. Decided before remat, the same in every plan:
random numbers belong to layer, step and microbatch, so that a value that is computed and packed
again has the same bits. Roundings stay on their side of an activation's kinks, or a slope would be
another one's; a ReLU of its own keeps a bit an element (fusion.mask_relus).

Known limit: with several activations of one value, rounding respects the kinks of the first only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import UsageError
from ...formats import FORMATS, MEMORIES
from ...ir import Builder, Graph, Node, Value
from ...ops.registry import op

# Backward ops that may read roundings, and which slopes: those that have a bound.
_READERS = """
    conv_dw conv_csr_dw matmul_grad bn_reduce bn_dx bn_dx_eval group_norm_dx group_norm_dparam
    layer_norm_dx layer_norm_dparam rms_norm_dx rms_norm_dparam unary_bwd
"""
_SLOPES = """
    leaky_relu hardswish hardsigmoid sigmoid tanh erf elu softplus softsign mish sin cos selu silu
    clip gelu gelu_tanh
"""
# Codes of language/act.py: those that have kinks, and what stands for other activations.
_CLIP, _HARDSWISH, _LEAKY = 2, 3, 6
_KINKS = frozenset((1, _CLIP, _HARDSWISH, _LEAKY))
_CODES = {"leaky_relu": _LEAKY, "elu": _LEAKY, "selu": _LEAKY, "hardswish": _HARDSWISH}
Sides = tuple[tuple[str, ...], dict[str, Any]]


@dataclass
class _Uses:
    """Positions of a graph's nodes that read a value: the last in forward, all in backward.

    Attributes:
      sides: inputs and attributes of `pack_sides` besides the value; None: no reader has kinks.
    """

    forward: int
    backward: list[int] = field(default_factory=list)
    sides: Sides | None = None


def pack_saved(graph: Graph, saved: str | None) -> Graph:
    """The graph with its saved values packed.

    Args:
      graph: a training graph with storages assigned.
      saved: a name of MEMORIES stored in blocks; None leaves the graph unchanged.
    """
    if saved is None:
        return graph
    dtype = MEMORIES[saved].name
    found = _packable(graph, FORMATS[dtype].block)
    builder = Builder(graph.values)
    before: dict[int, list[Node]] = {}
    behind: dict[int, list[Node]] = {}
    renamed: dict[int, dict[str, str]] = {}  # position of a node -> root -> what it reads instead
    for root, uses in found.items():
        value = graph.values[root]
        packed = builder.value(f"{root}.packed", value.shape, dtype)
        node = _packing(builder, root, packed, uses)
        last = graph.nodes[uses.forward]
        room = before if _overwrites(last, root, graph) else behind
        room.setdefault(uses.forward, []).append(node)
        floats, previous = "", -2
        for at in uses.backward:
            if at != previous + 1:
                floats = builder.value(f"{root}.unpacked", value.shape, value.dtype, "gradient")
                unpack = builder.node("unpack", [packed], [floats], name=floats, phase="backward")
                before.setdefault(at, []).append(unpack)
            renamed.setdefault(at, {})[root] = floats
            previous = at
    nodes: list[Node] = []
    for at, node in enumerate(graph.nodes):
        instead = renamed.get(at, {})
        own = _reading(node, instead, graph, builder) if instead else node
        nodes += [*before.get(at, ()), own, *behind.get(at, ())]
    return graph.with_nodes(nodes, builder.values)


def check_saved(graphs: Iterable[Graph], saved: str | None) -> None:
    """Refuse the storage option if no graph of any microbatch has values to pack.

    Args:
      graphs: training graphs as returned by `pack_saved`.
    Raises:
      UsageError: names the option.
    """
    packs = ("pack", "pack_sides")
    if saved is None or any(node.op in packs for graph in graphs for node in graph.nodes):
        return
    least = FORMATS[MEMORIES[saved].name].block
    raise UsageError(
        f"saved {saved}: no saved value of a convolution, product, norm or activation has at "
        f"least {least} elements. Leave saved out."
    )


def _packing(builder: Builder, root: str, packed: str, uses: _Uses) -> Node:
    if uses.sides is None:
        return builder.node("pack", [root], [packed], name=packed)
    inputs, attrs = uses.sides
    return builder.node("pack_sides", [root, *inputs], [packed], attrs, name=packed)


def _packable(graph: Graph, least: int) -> dict[str, _Uses]:
    """Roots to pack, in order of their last forward reader."""
    uses: dict[str, _Uses] = {}
    kept = {graph.root(name) for name in graph.outputs}
    for at, node in enumerate(graph.nodes):
        for root in dict.fromkeys(graph.root(name) for name in (*node.reads, *node.writes)):
            value = graph.values[root]
            if value.role != "activation" or not FORMATS[value.dtype].floats:
                continue
            found = uses.setdefault(root, _Uses(at))
            if node.phase != "backward":
                found.forward = at
                if found.backward:  # of windows that follow each other
                    kept.add(root)
            elif root not in kept and _may_round(node, root, graph):
                found.backward.append(at)
                found.sides = found.sides or _sides(node, root, graph)
            else:
                kept.add(root)
    return {
        root: found
        for root, found in uses.items()
        if found.backward and root not in kept and graph.values[root].size >= least
    }


def _may_round(node: Node, root: str, graph: Graph) -> bool:
    if node.op not in _READERS.split() or root in {graph.root(name) for name in node.writes}:
        return False
    return node.op != "unary_bwd" or node.attrs["f"] in _SLOPES.split()


def _sides(node: Node, root: str, graph: Graph) -> Sides | None:
    """What `pack_sides` takes for the kinks that a backward node meets, None where it has none."""
    attrs = node.attrs
    if node.op == "unary_bwd":
        name, low, high = attrs["f"], attrs["a"], attrs["b"]
        if name == "hardsigmoid" and low:
            name, low, high = "clip", -high / low, (1 - high) / low
        code = _CLIP if name == "clip" else _CODES.get(name, 0)
        return (("", "", ""), {"act": code, "lo": low, "hi": high}) if code else None
    operands = op(node.op).named(node)
    x = graph.values[operands["x"]] if operands.get("x") else None
    if x is None or attrs.get("act", 0) not in _KINKS or not operands.get("stat"):
        return None
    if graph.root(x.name) != root or x.shape != graph.values[root].shape:
        return None
    inputs = tuple(operands.get(name, "") for name in ("stat", "gamma", "beta"))
    return inputs, {name: attrs.get(name, 0.0) for name in ("act", "lo", "hi")}


def _overwrites(node: Node, root: str, graph: Graph) -> bool:
    """Whether a node could write its output over the value, if it isn't read later."""
    pairs: Sequence[tuple[int, int]] = op(node.op).in_place
    return any(
        source < len(node.inputs)
        and node.inputs[source]
        and graph.root(node.inputs[source]) == root
        for _, source in pairs
    )


def _reading(node: Node, instead: Mapping[str, str], graph: Graph, builder: Builder) -> Node:
    """The node with these roots, or views of them, replaced by other values."""

    def name(old: str) -> str:
        new = instead.get(graph.root(old)) if old else None
        if new is None or not graph.values[old].view_of:
            return old if new is None else new
        view: Value = graph.values[old]
        return builder.value(f"{new}.view", view.shape, view.dtype, "gradient", new)

    return replace(node, inputs=tuple(map(name, node.inputs)))
