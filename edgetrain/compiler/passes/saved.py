"""Saved values in blocks of 8 bits: forward computes with what it stored, backward with roundings.

What backward reads is packed after its last reader in forward, and unpacked right before each of
its readers, or once for readers that follow each other. An op says whether its backward may read
roundings (`Op.may_round`: convolutions, matrix products, norms, activations whose slope is
bounded). A value that any other op reads in backward stays as it is, and so does the model's
input. So do queries, keys, values and output of attention by blocks: its backward makes the
weights again beside the exact sums of their softmax, and where a head attends sharply the rest of
two large sums that nearly cancel is the gradient. Decided before remat, the same in every plan:
random numbers belong to layer, step and microbatch, so that a value that is computed and packed
again has the same bits. Roundings stay on their side of an activation's kinks, or a slope would be
another one's; a ReLU of its own keeps a bit an element (fusion.mask_relus).

Known limit: with several activations of one value, rounding respects the kinks of the first only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import UsageError
from ...formats import FORMATS, MEMORIES
from ...ir import Builder, Graph, Node, Value
from ...ops.registry import op
from ...ops.saved import PACK, PACK_SIDES, UNPACK
from ...ops.sides import Sides


@dataclass
class _Uses:
    """Positions of a graph's nodes that read a value: the last in forward, all in backward.

    Attributes:
      sides: kinks that a reader meets; None: none has any.
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
                unpack = builder.node(
                    UNPACK.name, [packed], [floats], name=floats, phase="backward"
                )
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
    packs = (PACK.name, PACK_SIDES.name)
    if saved is None or any(node.op in packs for graph in graphs for node in graph.nodes):
        return
    least = FORMATS[MEMORIES[saved].name].block
    raise UsageError(
        f"saved {saved}: no saved value of a convolution, product, norm or activation has at "
        f"least {least} elements. Leave saved out."
    )


def _packing(builder: Builder, root: str, packed: str, uses: _Uses) -> Node:
    sides = uses.sides
    if sides is None:
        return builder.node(PACK.name, [root], [packed], name=packed)
    attrs = {"act": sides.act, "lo": sides.lo, "hi": sides.hi}
    inputs = [root, *sides.affine]
    return builder.node(PACK_SIDES.name, inputs, [packed], attrs, name=packed)


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
    return op(node.op).may_round(node) and root not in {graph.root(name) for name in node.writes}


def _sides(node: Node, root: str, graph: Graph) -> Sides | None:
    """The kinks that a backward node meets in a value, None where it has none."""
    sides = op(node.op).sides(node)
    if sides is None or not sides.x:
        return sides
    fits = graph.root(sides.x) == root and graph.values[sides.x].shape == graph.values[root].shape
    return sides if fits else None


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
