"""The integers that a model accepts: classes, table rows, and labels that are ignored.

An index is followed back, through nodes that only move integers, to the places of the input that
contain it. A model may exclude one value before it indexes: where(x == c, anything, x) allows c.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...ir import Graph, Node
from ...ops.registry import op
from ..options import Options
from ..plan.candidates import Candidate


@dataclass
class Limits:
    """Limits of integer inputs, by name.

    Attributes:
      below: integers in [0, below) are allowed.
      ignored: another allowed value.
      capped: inputs whose larger integers act like the largest.
    """

    below: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    capped: set[str] = field(default_factory=set)


class Source(NamedTuple):
    """Places of an input that a value was moved from.

    Attributes:
      at: their flat indices.
      excluded: a value that does not reach the index; None if there is none.
    """

    name: str
    at: np.ndarray
    excluded: int | None


def input_limits(
    graph: Graph,
    options: Options,
    shapes: Mapping[str, tuple[int, ...]],
    arrays: Mapping[str, np.ndarray],
) -> Limits:
    """Upper bounds of integer inputs: classes for labels, rows for token ids.

    Args:
      shapes: of the outputs with losses, by the staged value of their targets.
      arrays: of constants, by name.
    """
    search = _Search(graph, arrays)
    for term in options.terms:
        classes = term.loss.limit(shapes[term.target])
        if classes is not None:
            search.found.below[term.target] = classes
            if term.loss.capped:
                search.found.capped.add(term.target)
    for node in graph.nodes:
        for index, rows in op(node.op).indices(node, graph):
            search.bound(index, rows, op(node.op).capped)
        if node.op == "equal" and not options.loss.takes_target:
            search.one_hot(node)
    return search.limits()


def limits_of(candidate: Candidate) -> Limits:
    """The limits of a Program's inputs."""
    graphs = candidate.graphs
    shapes = {name: shape for name, (shape, _) in graphs.outputs.items()}
    return input_limits(candidate.train.graph, candidate.options, shapes, graphs.arrays)


def _passes(node: Node) -> bool:
    """Whether a node passes integers on: they can be followed back through it."""
    return op(node.op).moves_only or node.op == "where"


class _Search:
    def __init__(self, graph: Graph, arrays: Mapping[str, np.ndarray]) -> None:
        self._graph, self._arrays, self.found = graph, arrays, Limits()
        self._makers = {name: node for node in graph.nodes for name in node.writes}
        self._bounds: dict[str, np.ndarray] = {}  # of each place; 0: none
        self._indices: set[str] = set()
        self._moved: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def limits(self) -> Limits:
        """The limits, after all calls of `bound`. Places that are read as numbers have none, and
        then their input has none."""
        numbers = self._numbers()
        for name, bounds in self._bounds.items():
            if not np.any(numbers[name] & (bounds == 0)):
                rows = int(bounds.max())
                self.found.below[name] = min(rows, self.found.below.get(name, rows))
            elif name not in self.found.below:
                self.found.ignored.pop(name, None)
        return self.found

    def bound(self, index: str, rows: int, capped: bool = False) -> None:
        """Limit the places of inputs that an index comes from to rows [0, rows)."""
        self._indices.add(index)
        by_input: dict[str, set[int]] = {}
        for source in self._sources(index):
            bounds = self._bounds.setdefault(source.name, self._places(source.name))
            known = bounds[source.at]
            bounds[source.at] = np.where(known == 0, rows, np.minimum(known, rows))
            excluded = by_input.setdefault(source.name, set())
            if source.excluded is not None:
                excluded.add(source.excluded)
            if capped:
                self.found.capped.add(source.name)
        for name, values in by_input.items():
            if len(values) == 1:
                self.found.ignored.setdefault(name, values.pop())

    def _places(self, name: str) -> np.ndarray:
        return np.zeros(self._graph.values[name].size, np.int64)

    def _numbers(self) -> dict[str, np.ndarray]:
        """Which places of the bounded inputs are read other than as an index."""
        out = {name: self._places(name) > 0 for name in self._bounds}
        held = set(out)
        for node in self._graph.nodes if out else ():
            reads = [name for name in node.reads if self._graph.root(name) in held]
            if _passes(node) and reads:
                held.update(node.writes)
                continue
            for name in reads:
                for source in self._sources(name) if name not in self._indices else ():
                    if source.name in out:
                        out[source.name][source.at] = True
        return out

    def one_hot(self, node: Node) -> None:
        """Limit labels to the classes they are compared with, if a loss multiplies by the result.

        (A table's row may be selected this way too; other integers then select none.)
        """
        for k in (0, 1):
            labels, known = node.inputs[k], self._arrays.get(self._graph.root(node.inputs[1 - k]))
            if known is None or known.size < 2 or known.shape[-1] != known.size:
                continue
            counted = np.array_equal(known.ravel(), np.arange(known.size))
            if counted and self._graph.values[labels].shape[-1:] == (1,) and self._factor(node):
                self.bound(labels, known.size)

    def _factor(self, node: Node) -> bool:
        """Whether the node's output is a factor of an elementwise product."""
        held = set(node.writes)
        for reader in self._graph.nodes:
            if any(self._graph.root(name) in held for name in reader.reads):
                if reader.op in ("mul", "where"):
                    return True
                if reader.op in ("copy", "truth"):
                    held.update(reader.writes)
        return False

    def _sources(self, name: str, elements: np.ndarray | None = None) -> list[Source]:
        """Where these places of a value (default: all) were moved from."""
        root = self._graph.root(name)
        value = self._graph.values[root]
        elements = np.arange(value.size) if elements is None else elements
        if value.role == "input":
            return [Source(root, elements, None)]
        node = self._makers.get(root)
        if node is None or not _passes(node):
            return []
        if node.op == "where":
            return self._where(node, elements)
        if node.op == "copy":
            which, place = self._moves(node)
            which, place = which[elements], place[elements]
            return [
                source
                for k, given in enumerate(node.inputs)
                for source in self._sources(given, place[which == k])
                if len(source.at)
            ]
        same = self._graph.values[node.inputs[0]].size == value.size
        return self._sources(node.inputs[0], elements if same else None)

    def _moves(self, node: Node) -> tuple[np.ndarray, np.ndarray]:
        """For each place of a copy: the input it comes from (-1: none), and the place there."""
        if node.outputs[0] not in self._moved:
            size = self._graph.values[node.outputs[0]].size
            which, place = np.full(size, -1), np.zeros(size, np.int64)
            for k, start, to, dims, steps, steps_to in node.attrs["moves"]:
                indices = np.indices(dims).reshape(len(dims), -1)
                there = to + np.dot(steps_to, indices) if len(dims) else np.array([to])
                which[there] = k
                place[there] = start + np.dot(steps, indices) if len(dims) else start
            self._moved[node.outputs[0]] = which, place
        return self._moved[node.outputs[0]]

    def _where(self, node: Node, elements: np.ndarray) -> list[Source]:
        """where(x == c, constant, x) or where(not x == c, x, constant)."""
        mask, turned = self._makers.get(self._graph.root(node.inputs[0])), False
        while mask is not None and mask.op in ("truth", "copy", "expand"):
            turned ^= mask.op == "truth" and not mask.attrs["want"]
            mask = self._makers.get(self._graph.root(mask.inputs[0]))
        if mask is None or mask.op != "equal":
            return []
        own = node.inputs[1 if turned else 2]
        same = self._graph.values[own].size == self._graph.values[node.outputs[0]].size
        kept = self._sources(own, elements if same else None)
        for k in (0, 1):
            known = self._arrays.get(self._graph.root(mask.inputs[1 - k]))
            compared = {source.name for source in self._sources(mask.inputs[k])}
            if known is not None and known.size == 1 and compared >= {s.name for s in kept}:
                excluded = int(known.ravel()[0])
                return [source._replace(excluded=excluded) for source in kept]
        return []
