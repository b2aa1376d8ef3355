"""The integers that a model accepts: classes, table rows, and labels that are ignored.

An index is followed back, through nodes that only move integers, to the input that contains it. A
model may exclude one value before it indexes: where(x == c, anything, x) allows c.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...ir import Graph, Node
from ...ops.registry import op
from ..options import Options


@dataclass
class Limits:
    """Limits of integer inputs, by name.

    Attributes:
      below: integers in [0, below) are allowed.
      ignored: another allowed value.
    """

    below: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)


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
    for node in graph.nodes:
        for index, rows in op(node.op).indices(node, graph):
            search.bound(index, rows)
        if node.op == "equal" and not options.loss.takes_target:
            search.one_hot(node)
    return search.found


def _moved(dims: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a walk reads a whole array, or all but one place along an axis (shifted tokens)."""
    short = [d - k for d, k in zip(shape, dims, strict=False) if d != k]
    return math.prod(dims) == math.prod(shape) or (len(dims) == len(shape) and short == [1])


class _Search:
    def __init__(self, graph: Graph, arrays: Mapping[str, np.ndarray]) -> None:
        self._graph, self._arrays, self.found = graph, arrays, Limits()
        self._makers = {name: node for node in graph.nodes for name in node.writes}

    def bound(self, index: str, rows: int) -> None:
        """Limit the inputs that an index comes from to rows [0, rows)."""
        result, by_input = self.found, dict[str, list[int | None]]()
        for name, ignored in self._sources(index, None):
            by_input.setdefault(name, []).append(ignored)
        for name, values in by_input.items():
            result.below[name] = min(rows, result.below.get(name, rows))
            known = {value for value in values if value is not None}
            if len(known) == 1:
                result.ignored.setdefault(name, known.pop())

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

    def _sources(self, name: str, column: int | None) -> list[tuple[str, int | None]]:
        """(input, excluded value) of the sources of `name`.

        Args:
          column: of the last axis, if only this one is read.
        """
        root = self._graph.root(name)
        if self._graph.values[root].role == "input":
            return [(root, None)]
        node = self._makers.get(root)
        if node is None:
            return []
        if node.op == "where":
            return self._where(node)
        if node.op in ("expand", "detach"):
            return self._sources(node.inputs[0], None)
        if node.op != "copy":
            return []
        moves = node.attrs["moves"]
        if len(node.inputs) == 1 and len(moves) == 1:
            _, start, _, dims, steps, _ = moves[0]
            shape = self._graph.values[node.inputs[0]].shape
            if dims and shape and steps[-1] == shape[-1] > max(start, 1):
                column = start  # one column of several
            elif not _moved(dims, shape):
                return []
            return self._sources(node.inputs[0], column)
        width = self._graph.values[node.outputs[0]].shape[-1]
        read = {s for s, _, to, *_ in moves if column is None or to % width == column}
        return [pair for k in read for pair in self._sources(node.inputs[k], None)]

    def _where(self, node: Node) -> list[tuple[str, int | None]]:
        """where(x == c, constant, x) or where(not x == c, x, constant)."""
        mask, turned = self._makers.get(self._graph.root(node.inputs[0])), False
        while mask is not None and mask.op in ("truth", "copy", "expand"):
            turned ^= mask.op == "truth" and not mask.attrs["want"]
            mask = self._makers.get(self._graph.root(mask.inputs[0]))
        if mask is None or mask.op != "equal":
            return []
        kept = self._sources(node.inputs[1 if turned else 2], None)
        for k in (0, 1):
            known = self._arrays.get(self._graph.root(mask.inputs[1 - k]))
            compared = {name for name, _ in self._sources(mask.inputs[k], None)}
            if known is not None and known.size == 1 and compared >= {name for name, _ in kept}:
                return [(name, int(known.ravel()[0])) for name, _ in kept]
        return []
