"""Traces the elements of an operand back to the value they were copied from.

There may be views, transposes, repeated heads and factors between a projection and a product. They
are traced back as functions of the linear index. Evaluating the index at every pair of axes gives
the strides, so it does not matter how the model expresses the copies.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir import Graph, Node
from ...ops.strides import broadcast, contiguous, prod

Index = Callable[..., np.ndarray]  # of integers along axes, broadcast against each other
_MOST = 66  # positions to evaluate along an axis, at most


@dataclass(frozen=True)
class Source:
    """A value that an operand is a rearrangement of.

    Attributes:
      back: linear index in the operand -> linear index in the value.
      scale: factor from the value to the operand.
      steps: nodes in between.
    """

    name: str
    back: Index
    scale: float = 1.0
    steps: int = 0


class Walker:
    """A graph with producers and read counts of its values, and its constants."""

    def __init__(self, graph: Graph, arrays: Mapping[str, np.ndarray]) -> None:
        self.graph, self.arrays = graph, arrays
        self.makers = {name: node for node in graph.nodes for name in node.writes}
        self.readers = graph.readers()
        self.uses = dict.fromkeys(graph.values, 0)
        for name in (*graph.outputs, *(n for node in graph.nodes for n in node.reads)):
            self.uses[name] += 1
        self.trained = self._reached()

    def _reached(self) -> set[str]:
        """Values that depend on a parameter."""
        result = {name for name, v in self.graph.values.items() if v.role == "parameter"}
        for node in self.graph.nodes:
            if any(name in result for name in node.reads):
                result.update(node.writes)
        return result

    def constant(self, name: str) -> np.ndarray | None:
        """A constant as an array, or None."""
        value = self.graph.values[name]
        maker = self.makers.get(name)
        if maker is not None and maker.op in ("view", "expand"):
            result = self.constant(maker.inputs[0])
            if result is None:
                return None
            wide = maker.op == "expand"
            return np.broadcast_to(result, value.shape) if wide else result.reshape(value.shape)
        root = self.graph.values[self.graph.root(name)]
        array = self.arrays.get(root.name) if root.role == "constant" else None
        return None if array is None else np.asarray(array).reshape(value.shape)

    def number(self, name: str) -> float | None:
        """The number in a uniform constant; None for other values."""
        result = self.constant(name)
        if result is None or not result.size or (result != result.flat[0]).any():
            return None
        return float(result.flat[0])

    def only_reader(self, name: str) -> Node | None:
        """The only reader of a value; None if there are several or the value is an output."""
        readers = self.readers[name]
        return readers[0] if self.uses[name] == 1 and len(readers) == 1 else None

    def sources(self, name: str) -> list[Source]:
        """The value itself, then the values it was copied from, nearest first."""
        result = [Source(name, lambda index: index)]
        while (node := self.makers.get(result[-1].name)) is not None:
            last = result[-1]
            step = self._step(node)
            if step is None:
                break
            before, back, factor = step
            both = chained(last.back, back)
            result.append(Source(before, both, last.scale * factor, last.steps + 1))
        return result

    def _step(self, node: Node) -> tuple[str, Index, float] | None:
        values = self.graph.values
        if not node.inputs or values[node.inputs[0]].dtype != values[node.outputs[0]].dtype:
            return None
        if node.op == "view":
            return node.inputs[0], lambda index: index, 1.0
        if node.op == "copy":
            move = _rearranged(node)
            return move and (node.inputs[0], lambda index: _moved(index, *move), 1.0)
        if node.op == "expand":
            shape = values[node.outputs[0]].shape
            move = shape, contiguous(shape), broadcast(values[node.inputs[0]].shape, shape)
            return node.inputs[0], lambda index: _moved(index, *move), 1.0
        factored = self.factor(node)
        return factored and (factored[0], lambda index: index, factored[1])

    def factor(self, node: Node) -> tuple[str, float] | None:
        """(value, number) if the node multiplies a value by a number, otherwise None."""
        if node.op not in ("mul", "div"):
            return None
        shape = self.graph.values[node.outputs[0]].shape
        pairs = [node.inputs[:2]] + ([node.inputs[1::-1]] if node.op == "mul" else [])
        for value, other in pairs:
            number = self.number(other)
            if number and np.isfinite(number) and self.graph.values[value].shape == shape:
                return value, number if node.op == "mul" else 1.0 / number
        return None


def chained(first: Index, then: Index) -> Index:
    """The composition: `first`, then `then`."""
    return lambda index: then(first(index))


def _rearranged(node: Node) -> tuple | None:
    """(dims, output strides, input strides) of a copy that fills its output."""
    moves = node.attrs["moves"]
    if len(moves) != 1 or node.attrs.get("fill") is not None or node.attrs.get("acc"):
        return None
    _, xo, yo, dims, xs, ys = moves[0]
    dense = is_dense(dims, ys) and is_dense(dims, xs)
    return (tuple(dims), tuple(ys), tuple(xs)) if not (xo or yo) and dense else None


def forward_through(node: Node) -> Index | None:
    """The function from an index in a rearrangement's input to its output; None for other nodes."""
    move = _rearranged(node) if node.op == "copy" else None
    if move is None:
        return (lambda index: index) if node.op == "view" else None
    dims, ys, xs = move
    return lambda index: _moved(index, dims, xs, ys)


def _moved(index: np.ndarray, dims: Sequence[int], before: Sequence[int], after: Sequence[int]):
    """Convert a linear index between dense arrays with strides `before` and `after`."""
    axes = sorted((k for k, d in enumerate(dims) if d > 1), key=lambda k: -before[k])
    rest, out = index, np.zeros_like(index)
    for k in axes:
        out = out + rest // before[k] * after[k]
        rest = rest % before[k]
    return out


def is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the strides cover a contiguous range with exactly as many places as elements."""
    expected = 1
    for stride, size in sorted((s, d) for d, s in zip(sizes, strides, strict=True) if d > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def affine(index: Index, sizes: Sequence[int]) -> list[int] | None:
    """Strides of an index function if it is affine from 0, otherwise None.

    Args:
      index: function of one array per size.
    """
    none = [np.zeros(1, np.int64)] * len(sizes)
    if int(index(*none)[0]):
        return None
    strides = []
    for k, size in enumerate(sizes):
        unit = list(none)
        unit[k] = np.ones(1, np.int64)
        strides.append(int(index(*unit)[0]) if size > 1 else 0)
    for k, size in enumerate(sizes):
        for other in range(k + 1, len(sizes)):
            for rest in (0, 1):
                axes = [np.full((1, 1), rest * (s - 1), np.int64) for s in sizes]
                axes[k] = _places(size)[:, None]
                axes[other] = _places(sizes[other])[None, :]
                wanted = np.zeros((1, 1), np.int64)
                for places, stride in zip(axes, strides, strict=True):
                    wanted = wanted + places * stride
                if (np.broadcast_to(index(*axes), wanted.shape) != wanted).any():
                    return None
    return strides


def _places(size: int) -> np.ndarray:
    """All positions of an axis; for a long one, only both ends and some in between."""
    if size <= _MOST:
        return np.arange(size, dtype=np.int64)
    third = _MOST // 3
    between = np.linspace(third, size - third, third).astype(np.int64)
    return np.concatenate([np.arange(third), between, np.arange(size - third, size)])


def pairs(count: int) -> list[tuple[int, int]]:
    """All pairs of factors of a count."""
    return [(count // k, k) for k in range(count, 0, -1) if count % k == 0]


def batch_index(shape: Sequence[int], of: Sequence[int]) -> Index:
    """Map a linear index over the batch dimensions `shape` to those of an operand."""
    steps, full = broadcast(of, shape), tuple(shape)
    if not full or prod(of) == prod(full):
        return lambda index: index
    if prod(of) == 1:
        return lambda index: index * 0
    return lambda index: _moved(index, full, contiguous(full), steps)
