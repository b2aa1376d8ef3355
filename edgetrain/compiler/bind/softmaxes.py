"""Merges Softmax, LogSoftmax and Sigmoid written as arithmetic (Exp, ReduceSum, Div) into one node.

Exporters of jax, TensorFlow and some of torch write these functions as arithmetic. A single node is
numerically stable, saves less, and can be absorbed by a loss on logits. A shift by the maximum
cancels and is removed; any other shift stays.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ...ir import Graph, Node

# A value, and its shapes on the path to its use.
_Way = tuple[str, list[tuple[int, ...]]]
_KEPT = ("view", "expand")
_LOWEST = -1e30  # a maximum with a constant this low changes nothing
# Ops that the functions are written with; such nodes are dropped once they are unread.
_PARTS = {
    *_KEPT, "detach", "exp", "sub", "add", "mul", "div", "neg", "log", "reciprocal", "max", "tanh",
    "where", "matmul", "reduce_mean", "reduce_sum", "reduce_max", "reduce_logsum",
    "reduce_logsumexp", "softmax", "log_softmax", "is_inf", "is_nan", "and", "not", "less",
}  # fmt: skip


def with_softmaxes(
    graph: Graph, arrays: Mapping[str, np.ndarray]
) -> tuple[Graph, Mapping[str, np.ndarray]]:
    """The forward graph with such functions merged.

    Args:
      arrays: arrays of its persistent values.
    Returns:
      Graph and arrays, both without constants that are no longer read.
    """
    result = _Found(graph, arrays)
    nodes = []
    for node in graph.nodes:
        made = result.rewritten(node)
        nodes.append(made)
        result.take(made)
    if all(made is node for made, node in zip(nodes, graph.nodes, strict=True)):
        return graph, arrays
    kept = _read(nodes, graph)
    used = {name for node in kept for name in node.reads} | {*graph.outputs}
    gone = {n for n, v in graph.values.items() if v.role == "constant" and n not in used}
    gone -= {graph.root(name) for name in used}
    values = {name: value for name, value in graph.values.items() if name not in gone}
    whole = replace(graph, values=values).with_nodes(kept)
    return whole, {name: array for name, array in arrays.items() if name not in gone}


def _read(nodes: list[Node], graph: Graph) -> list[Node]:
    """Remove unread nodes of the kinds in `_PARTS`."""
    wanted, kept = {*graph.outputs}, []
    for node in reversed(nodes):
        if node.op not in _PARTS or wanted.intersection(node.writes):
            kept.append(node)
            wanted.update(node.reads)
    return kept[::-1]


class _Found:
    """Producers of values so far, and the functions completed by a node."""

    def __init__(self, graph: Graph, arrays: Mapping[str, np.ndarray]) -> None:
        self._values, self._arrays = graph.values, arrays
        self._makers: dict[str, Node] = {}
        self._ends: dict[str, Callable[[Node], Node | None]] = {
            "div": self._quotient, "mul": self._product, "log": self._log, "sub": self._difference,
            "exp": self._exp, "reciprocal": self._reciprocal, "add": self._tanh_sigmoid,
        }  # fmt: skip

    def take(self, node: Node) -> None:
        """Record a processed node."""
        self._makers.update(dict.fromkeys(node.writes, node))

    def rewritten(self, node: Node) -> Node:
        """The function completed by this node, or the node itself."""
        end = self._ends.get(node.op)
        return (end(node) if end else None) or node

    # Queries about values.

    def _made(self, name: str, op: str) -> Node | None:
        node = self._makers.get(name)
        return node if node is not None and node.op == op else None

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._values[name].shape

    def _way(self, name: str) -> _Way:
        """Follow a value through shape changes and guards of a maximum."""
        shapes = [self._shape(name)]
        while (node := self._makers.get(name)) is not None:
            inner = self._inner(node)
            if not inner:
                break
            name = inner
            shapes.append(self._shape(name))
        return name, shapes[::-1]

    def _inner(self, node: Node) -> str:
        if node.op in _KEPT:
            return node.inputs[0]
        if node.op == "detach":  # only a shift cancels with its gradient
            top = self._made(self._way(node.inputs[0])[0], "reduce_max")
            return node.inputs[0] if top else ""
        same = [n for n in node.inputs if n and self._shape(n) == self._shape(node.outputs[0])]
        if node.op == "max":
            low = [n for n in node.inputs if self._is_constant(n, lambda a: a <= _LOWEST)]
            rest = [n for n in node.inputs if n not in low]
            return rest[0] if low and len(rest) == 1 and rest[0] in same else ""
        if node.op == "where":  # isfinite(top) ? top : 0
            tops = [n for n in node.inputs[1:] if self._made(self._way(n)[0], "reduce_max")]
            guard = len(tops) == 1 and tops[0] in same and self._is_guard(node.inputs[0])
            return tops[0] if guard else ""
        return ""

    def _is_guard(self, mask: str) -> bool:
        """Whether a condition only asks for infinity or NaN."""
        node = self._makers.get(self._way(mask)[0])
        if node is None:
            return False
        if node.op in ("and", "or", "not"):
            return all(self._is_guard(name) for name in node.inputs)
        infinite = any(n and self._is_constant(n, np.isinf) for n in node.inputs)
        return infinite or node.op in ("is_inf", "is_nan")

    def _constant(self, name: str) -> np.ndarray | None:
        """The numbers behind a constant or its views; None if there are none."""
        if not name:
            return None
        while above := self._values[name].view_of:
            name = above
        array = self._arrays.get(name)
        if array is None or not array.size or self._values[name].role != "constant":
            return None
        return array

    def _is_constant(self, name: str, test: Callable[[np.ndarray], np.ndarray]) -> bool:
        array = self._constant(name)
        return array is not None and bool(np.all(test(array)))

    def _is_number(self, name: str, number: float) -> bool:
        array, single = self._constant(name), np.float32(number)
        return array is not None and array.item(0) == single and bool(np.all(array == single))

    def _reduced(self, name: str, op: str, shape: tuple[int, ...]) -> tuple[str, int] | None:
        """(reduced value, axis) if `name` is its reduction broadcast to `shape` along the axis."""
        root, shapes = self._way(name)
        if op == "reduce_sum":
            node, shapes = self._sum(root, shapes)
        else:
            node = self._made(root, op)
        return self._along(node, shapes, shape) if node else None

    def _along(
        self, node: Node, shapes: list[tuple[int, ...]], shape: tuple[int, ...]
    ) -> tuple[str, int] | None:
        source = node.inputs[0]
        axes = [a for a in node.attrs["axes"] if self._shape(source)[a] > 1]
        if self._shape(source) != shape or len(axes) > 1:
            return None
        axis = axes[0] if axes else max(node.attrs["axes"], default=0)
        kept = tuple(1 if k == axis else d for k, d in enumerate(shape))
        return (source, axis) if _is_spread([*shapes, shape], [kept, shape]) else None

    def _sum(self, name: str, shapes: list) -> tuple[Node | None, list]:
        """(node that sums along axes, shapes of its result).

        The sum may be written as a product with ones, or as a mean times the number of elements.
        """
        node = self._makers.get(name)
        if node is None or node.op == "reduce_sum":
            return node, shapes
        if node.op == "mul":
            for mean in filter(None, (self._made(n, "reduce_mean") for n in node.inputs)):
                sizes = self._shape(mean.inputs[0])
                count = float(np.prod([sizes[axis] for axis in mean.attrs["axes"]]))
                if self._other(node, count) == mean.outputs[0]:
                    return mean, shapes
        if node.op == "matmul" and not node.inputs[2] and node.attrs["alpha"] == 1.0:
            a, b, _ = node.inputs
            for behind, other, ones, turned in ((1, a, b, "ta"), (2, b, a, "tb")):
                source, way = self._way(other)
                axis = len(way[0]) - behind
                same = _stripped(way[0]) == _stripped(way[-1])
                if same and axis >= 0 and not node.attrs[turned] and self._is_number(ones, 1.0):
                    kept = list(self._shape(name))
                    kept[-behind] = 1
                    made = replace(node, op="reduce_sum", inputs=(source,), attrs={"axes": (axis,)})
                    return made, [tuple(kept), *shapes]
        return None, shapes

    def _is_detached(self, name: str) -> bool:
        """Whether a value passes no gradient back on the path that `_way` follows."""
        node = self._makers.get(name)
        if node is None or not (inner := self._inner(node)):
            return False
        return node.op == "detach" or self._is_detached(inner)

    def _unshifted(self, name: str, axis: int) -> str:
        """x if the value is x - max(x) along the axis, else the value."""
        shape, node = self._shape(name), self._makers.get(name)
        if node is None or node.op not in ("sub", "add"):
            return name
        x, shift = node.inputs
        if node.op == "add":
            pairs = ((x, self._negated(shift)), (shift, self._negated(x)))
            x, shift = next(((a, b) for a, b in pairs if b), ("", ""))
        top = self._reduced(shift, "reduce_max", shape) if shift else None
        return x if top == (x, axis) else name

    def _negated(self, name: str) -> str:
        """x if the value is -x, else ""."""
        node = self._makers.get(name)
        if node is None:
            return ""
        if node.op == "neg":
            return node.inputs[0]
        same = [n for n in node.inputs if n and self._shape(n) == self._shape(name)]
        if node.op == "mul":
            return self._other(node, -1.0)
        zero = node.op == "sub" and self._is_number(node.inputs[0], 0.0)
        return node.inputs[1] if zero and node.inputs[1] in same else ""

    def _other(self, node: Node, number: float) -> str:
        """The operand next to a constant with this number, or ""."""
        for first, other in (node.inputs, node.inputs[::-1]):
            alike = self._shape(other) == self._shape(node.outputs[0])
            if self._is_number(first, number) and alike:
                return other
        return ""

    # Functions that a node may complete.

    def _softmax(self, node: Node, part: str, total: str) -> Node | None:
        """part / total, with part = exp(z) and total its sum."""
        exp, shape = self._made(part, "exp"), self._shape(node.outputs[0])
        reduced = self._reduced(total, "reduce_sum", shape)
        if exp is None or reduced is None or reduced[0] != part:
            return None
        return self._function(node, "softmax", exp.inputs[0], reduced[1])

    def _function(self, node: Node, op: str, z: str, axis: int) -> Node:
        x = self._unshifted(z, axis)
        return replace(node, op=op, inputs=(x,), attrs={"axis": axis})

    def _quotient(self, node: Node) -> Node | None:
        a, b = node.inputs
        return self._softmax(node, a, b) or self._sigmoid_of_quotient(node)

    def _product(self, node: Node) -> Node | None:
        for part, other in (node.inputs, node.inputs[::-1]):
            root, shapes = self._way(other)
            below = self._one_over(root)
            if below:
                total, inner = self._way(below)
                result = self._total(node, part, total, [*inner, *shapes])
                if result:
                    return result
        return None

    def _one_over(self, name: str) -> str:
        """x if the value is 1 / x, else ""."""
        node = self._makers.get(name)
        if node is not None and node.op == "div" and self._is_number(node.inputs[0], 1.0):
            return node.inputs[1] if self._shape(node.inputs[1]) == self._shape(name) else ""
        return node.inputs[0] if node is not None and node.op == "reciprocal" else ""

    def _total(self, node: Node, part: str, total: str, shapes: list) -> Node | None:
        exp, (sums, shapes) = self._made(part, "exp"), self._sum(total, shapes)
        if exp is None or sums is None or sums.inputs[0] != part:
            return None
        result = self._along(sums, shapes, self._shape(node.outputs[0]))
        return result and self._function(node, "softmax", exp.inputs[0], result[1])

    def _log(self, node: Node) -> Node | None:
        root, shapes = self._way(node.inputs[0])
        inner = self._made(root, "softmax")
        if inner is None or len({*shapes}) > 1:
            return None
        return replace(node, op="log_softmax", inputs=inner.inputs, attrs=inner.attrs)

    def _exp(self, node: Node) -> Node | None:
        inner = self._made(node.inputs[0], "log_softmax")
        return inner and replace(node, op="softmax", inputs=inner.inputs, attrs=inner.attrs)

    def _difference(self, node: Node) -> Node | None:
        """x - log(sum(exp(x))); the logarithm may be shifted by the maximum."""
        x, rest = node.inputs
        shape = self._shape(node.outputs[0])
        if self._shape(x) != shape:
            return None
        for total, shift, detached in self._terms(rest):
            exponents = self._logsumexp(*total, shape)
            if exponents is None:
                continue
            z, axis = exponents
            if shift is None and z == x:
                return self._function(node, "log_softmax", x, axis)
            if shift is not None and z != x and self._unshifted(z, axis) == x:
                within = (self._negated(n) or n for n in self._makers[z].inputs)
                alike = any(map(self._is_detached, within)) == detached
                top = self._made(shift[0], "reduce_max")
                if top and alike and self._along(top, shift[1], shape) == (x, axis):
                    return self._function(node, "log_softmax", x, axis)
        return None

    def _logsumexp(
        self, root: str, shapes: list[tuple[int, ...]], shape: tuple[int, ...]
    ) -> tuple[str, int] | None:
        """(z, axis) if the value is log(sum(exp(z))) broadcast to `shape`: as one node, as the
        logarithm of a one-node sum, or as two nodes.
        """
        whole = self._made(root, "reduce_logsumexp")
        if whole is not None:
            return self._along(whole, shapes, shape)
        log, sums = self._made(root, "log"), self._made(root, "reduce_logsum")
        if log is not None:
            name, inner = self._way(log.inputs[0])
            sums, shapes = self._sum(name, [*inner, *shapes])
        exp = self._made(sums.inputs[0], "exp") if sums else None
        result = self._along(sums, shapes, shape) if sums and exp else None
        return (exp.inputs[0], result[1]) if exp and result else None

    def _terms(self, name: str) -> Iterator[tuple[_Way, _Way | None, bool]]:
        """Candidates for (log of a sum, its shift, whether that has no gradient): the value alone,
        or the operands of a sum."""
        root, shapes = self._way(name)
        yield (root, shapes), None, False
        add = self._made(root, "add")
        if add is not None:
            for one, other in (add.inputs, add.inputs[::-1]):
                total, shift = self._way(one), self._way(other)
                way = shift[0], [*shift[1], *shapes]
                yield (total[0], [*total[1], *shapes]), way, self._is_detached(other)

    def _reciprocal(self, node: Node) -> Node | None:
        x = self._one_and_exp(node.inputs[0])
        x = self._negated(x) if x else ""
        return self._sigmoid(node, x)

    def _sigmoid_of_quotient(self, node: Node) -> Node | None:
        """1 / (1 + exp(-x)), or exp(x) / (1 + exp(x))."""
        a, b = node.inputs
        x = self._one_and_exp(b)
        if not x:
            return None
        if self._is_number(a, 1.0):
            return self._sigmoid(node, self._negated(x))
        exp = self._made(a, "exp")
        return self._sigmoid(node, x) if exp is not None and exp.inputs[0] == x else None

    def _tanh_sigmoid(self, node: Node) -> Node | None:
        """0.5 + 0.5 * tanh(0.5 * x)."""
        half = self._made(self._other(node, 0.5), "mul")
        tanh = self._made(self._other(half, 0.5), "tanh") if half else None
        inner = self._makers.get(tanh.inputs[0]) if tanh else None
        if inner is None or inner.op not in ("mul", "div"):
            return None
        if inner.op == "mul":
            return self._sigmoid(node, self._other(inner, 0.5))
        return self._sigmoid(node, inner.inputs[0] if self._is_number(inner.inputs[1], 2.0) else "")

    def _one_and_exp(self, name: str) -> str:
        """z if the value is 1 + exp(z), else ""."""
        add = self._made(name, "add")
        exp = self._made(self._other(add, 1.0), "exp") if add else None
        return exp.inputs[0] if exp else ""

    def _sigmoid(self, node: Node, x: str) -> Node | None:
        if not x or self._shape(x) != self._shape(node.outputs[0]):
            return None
        return replace(node, op="sigmoid", inputs=(x,), attrs={"a": 0.0, "b": 0.0})


def _stripped(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without leading axes of 1."""
    first = next((k for k, d in enumerate(shape) if d != 1), len(shape))
    return shape[first:]


def _is_spread(way: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> bool:
    """Whether two sequences of shape changes and broadcasts of axes of 1 give equal results."""
    return _strides(way) == _strides(expected) is not None


def _strides(way: list[tuple[int, ...]]) -> list[tuple[int, int]] | None:
    """(size, step) of each axis after the last shape; None if a change copies."""
    array = np.empty(way[0], np.int8)
    for shape in way[1:]:
        if array.size == int(np.prod(shape)) and len(array.shape) != len(shape):
            changed = array.reshape(shape)
        else:
            try:
                changed = np.broadcast_to(array, shape)
            except ValueError:
                if array.size != int(np.prod(shape)):
                    return None
                changed = array.reshape(shape)
        if array.size and not np.may_share_memory(changed, array):
            return None
        array = changed
    return [(d, s if d > 1 else 0) for d, s in zip(array.shape, array.strides, strict=True)]
