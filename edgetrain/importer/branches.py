"""Graphs inside nodes: what they read, and their constants, which move to the graph around them.

A weight that a branch stores is then trained, written and quantised like any other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnx import GraphProto, NodeProto, helper


def subgraphs(node: NodeProto) -> Sequence[GraphProto]:
    """The branches of a node."""
    if not node.attribute:
        return ()
    graphs: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            graphs.append(attribute.g)
        graphs.extend(attribute.graphs)
    return graphs


def flat(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """All nodes, including those in branches."""
    for node in nodes:
        for part in subgraphs(node):
            yield from flat(part.node)
        yield node


def reads(node: NodeProto) -> Iterator[str]:
    """Names read by a node and its branches."""
    yield from node.input
    for part in subgraphs(node):
        yield from (value.name for value in part.output)
        for inner in part.node:
            yield from reads(inner)


def needed(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """Nodes that outputs depend on."""
    wanted, out = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            out.append(node)
            wanted.update(reads(node))
    return out[::-1]


def hoist(graph: GraphProto) -> None:
    """Move the constants of all branches to `graph`, and make names in branches unique."""
    if any(map(subgraphs, graph.node)):
        _Hoist(graph).run()


class _Hoist:
    """Moves constants.

    Attributes:
      every: names that are used somewhere.
      defined: names of values so far; each is the name of one value only.
      constants: Constant nodes that move.
    """

    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._every = {n for node in flat(graph.node) for n in (*reads(node), *node.output)}
        self._defined = set(_defined(graph))
        self._every |= self._defined
        self._constants: list[NodeProto] = []
        self._count: Counter[str] = Counter()  # other values of a name

    def run(self) -> None:
        for node in self._graph.node:
            for part in subgraphs(node):
                self._branch(part, {})
        nodes = [*self._constants, *self._graph.node]
        del self._graph.node[:]
        self._graph.node.extend(nodes)

    def _branch(self, part: GraphProto, outer: Mapping[str, str]) -> None:
        names = dict(outer) | {name: self._own(name) for name in _defined(part)}
        for value in (*part.input, *part.output, *part.initializer, *part.value_info):
            value.name = names.get(value.name, value.name)
        for node in part.node:
            for field in (node.input, node.output):
                field[:] = [names.get(name, name) for name in field]
            for inner in subgraphs(node):
                self._branch(inner, names)
        self._move(part)

    def _own(self, name: str) -> str:
        """An unused name for a value of a branch; its own if no other value has it."""
        base = name
        while name in self._defined or (name != base and name in self._every):
            self._count[base] += 1
            name = f"{base}'{self._count[base]}"
        self._every.add(name)
        self._defined.add(name)
        return name

    def _move(self, part: GraphProto) -> None:
        given = {value.name for value in part.input}
        tensors = [t for t in part.initializer if t.name not in given]
        fixed = [node for node in part.node if _is_constant(node)]
        moved = {*(t.name for t in tensors), *(name for node in fixed for name in node.output)}
        self._graph.initializer.extend(tensors)
        self._constants.extend(fixed)
        rest = [node for node in part.node if not _is_constant(node)]
        for value in part.output:  # a branch may not give a value of the outer graph itself
            if value.name in moved:
                name, value.name = value.name, self._own(value.name)
                rest.append(helper.make_node("Identity", [name], [value.name]))
        kept = [t for t in part.initializer if t.name in given]
        del part.node[:]
        del part.initializer[:]
        part.node.extend(rest)
        part.initializer.extend(kept)


def _is_constant(node: NodeProto) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def _defined(graph: GraphProto) -> dict[str, None]:
    """Names of values that a graph defines itself."""
    names = [value.name for value in (*graph.input, *graph.initializer)]
    names += [name for node in graph.node for name in node.output if name]
    return dict.fromkeys(names)
