"""Stores saved values in blocks of 8 bits: forward reads the exact value, backward a rounded one.

A value is packed after its last reader in forward, and unpacked right before its readers in
backward. Consecutive readers share one unpacked copy.

Which values: an op tells whether its backward may read a rounded value (`Op.may_round`:
convolutions, matrix products, norms, and activations with a bounded slope). A value stays exact if
any other op reads it in backward. Inputs of the model stay exact too, and so do the operands and
the output of attention in blocks: its backward recomputes the attention weights and combines them
with the exact sums of their softmax. With sharp attention, the gradient is the difference of two
large sums that nearly cancel, and rounding would replace it by noise.

Kinks: a rounded value stays on its side of an activation's kinks; otherwise it would get the slope
of the other side. A ReLU on its own saves one bit for each element instead (fusion.mask_relus).

This is decided before recomputation, so it is the same in every plan. Random numbers are hashes of
layer, step and microbatch: a value that is computed and packed again has the same bits.

Known limit: if several activations read one value, rounding respects the kinks of the first only.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import UsageError
from ...formats import FORMATS, MEMORIES
from ...ir import Builder, Graph, Node, Value
from ...ops.registry import op
from ...ops.saved import PACK, PACK_SIDES, UNPACK
from ...ops.sides import Sides


@dataclass
class _Uses:
    """Where a graph uses a value, as positions of nodes.

    Attributes:
      last_forward: the last node before backward that reads or writes the value.
      backward: the nodes of backward that read it.
      kinks: of the activation that reads it; None if no reader has any.
    """

    last_forward: int
    backward: list[int] = field(default_factory=list)
    kinks: Sides | None = None

    def runs(self) -> Iterator[list[int]]:
        """The nodes of backward, grouped into runs of consecutive ones."""
        run: list[int] = []
        for position in self.backward:
            if run and position != run[-1] + 1:
                yield run
                run = []
            run.append(position)
        if run:
            yield run


class _Edits:
    """Nodes to add to a graph, and inputs of its nodes to replace."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._builder = graph, Builder(graph.values)
        self._before: defaultdict[int, list[Node]] = defaultdict(list)
        self._after: defaultdict[int, list[Node]] = defaultdict(list)
        self._inputs: defaultdict[int, dict[str, str]] = defaultdict(dict)  # root -> other value

    def pack(self, root: str, dtype: str, uses: _Uses) -> None:
        """Pack a value at its last use in forward, and let backward read the unpacked value."""
        value = self._graph.values[root]
        packed = self._builder.value(f"{root}.packed", value.shape, dtype)
        node = _packing(self._builder, root, packed, uses.kinks)
        last = uses.last_forward
        early = _overwrites(self._graph.nodes[last], root, self._graph)
        (self._before if early else self._after)[last].append(node)
        for run in uses.runs():
            rounded = self._builder.value(f"{root}.unpacked", value.shape, value.dtype, "gradient")
            unpack = self._builder.node(
                UNPACK.name, [packed], [rounded], name=rounded, phase="backward"
            )
            self._before[run[0]].append(unpack)
            for position in run:
                self._inputs[position][root] = rounded

    def graph(self) -> Graph:
        """The graph with these edits."""
        nodes: list[Node] = []
        for position, node in enumerate(self._graph.nodes):
            inputs = self._inputs.get(position)
            if inputs:
                node = _reading(node, inputs, self._graph, self._builder)
            nodes += [*self._before.get(position, ()), node, *self._after.get(position, ())]
        return self._graph.with_nodes(nodes, self._builder.values)


def pack_saved(graph: Graph, saved: str | None) -> Graph:
    """The graph with its saved values packed.

    Args:
      graph: a training graph with storages assigned.
      saved: a name in MEMORIES whose format has blocks; None leaves the graph unchanged.
    """
    if saved is None:
        return graph
    dtype, edits = MEMORIES[saved].name, _Edits(graph)
    for root, uses in _packable(graph, FORMATS[dtype].block).items():
        edits.pack(root, dtype, uses)
    return edits.graph()


def check_saved(graphs: Iterable[Graph], saved: str | None) -> None:
    """Reject the storage option if no graph of any microbatch has values to pack.

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


def _packing(builder: Builder, root: str, packed: str, kinks: Sides | None) -> Node:
    if kinks is None:
        return builder.node(PACK.name, [root], [packed], name=packed)
    attrs = {"act": kinks.act, "lo": kinks.lo, "hi": kinks.hi}
    inputs = [root, *kinks.affine]
    return builder.node(PACK_SIDES.name, inputs, [packed], attrs, name=packed)


def _packable(graph: Graph, least: int) -> dict[str, _Uses]:
    """Roots to pack, in order of their first use; `least`: elements of a block."""
    uses_of: dict[str, _Uses] = {}
    exact = {graph.root(name) for name in graph.outputs}
    for position, node in enumerate(graph.nodes):
        for root in dict.fromkeys(graph.root(name) for name in (*node.reads, *node.writes)):
            value = graph.values[root]
            if value.role != "activation" or not FORMATS[value.dtype].floats:
                continue
            uses = uses_of.setdefault(root, _Uses(position))
            if node.phase != "backward":
                uses.last_forward = position
                if uses.backward:  # a later window of time reads it in forward again
                    exact.add(root)
            elif root not in exact and _may_round(node, root, graph):
                uses.backward.append(position)
                uses.kinks = uses.kinks or _kinks(node, root, graph)
            else:
                exact.add(root)
    return {
        root: uses
        for root, uses in uses_of.items()
        if uses.backward and root not in exact and graph.values[root].size >= least
    }


def _may_round(node: Node, root: str, graph: Graph) -> bool:
    return op(node.op).may_round(node) and root not in {graph.root(name) for name in node.writes}


def _kinks(node: Node, root: str, graph: Graph) -> Sides | None:
    """The kinks in a value that a node of backward depends on, or None."""
    sides = op(node.op).sides(node)
    if sides is None or not sides.x:
        return sides
    fits = graph.root(sides.x) == root and graph.values[sides.x].shape == graph.values[root].shape
    return sides if fits else None


def _overwrites(node: Node, root: str, graph: Graph) -> bool:
    """Whether a node may write its output over the value once nothing else reads it."""
    pairs: Sequence[tuple[int, int]] = op(node.op).in_place
    return any(
        source < len(node.inputs)
        and node.inputs[source]
        and graph.root(node.inputs[source]) == root
        for _, source in pairs
    )


def _reading(node: Node, inputs: Mapping[str, str], graph: Graph, builder: Builder) -> Node:
    """The node with these roots, or views of them, replaced by other values."""

    def name(old: str) -> str:
        new = inputs.get(graph.root(old)) if old else None
        if new is None or not graph.values[old].view_of:
            return old if new is None else new
        view: Value = graph.values[old]
        return builder.value(f"{new}.view", view.shape, view.dtype, "gradient", new)

    return replace(node, inputs=tuple(map(name, node.inputs)))
