"""Queries, keys, values and output of an attention, as strides into their source values."""

from dataclasses import dataclass

import numpy as np

from ...ir import Node
from .chain import Chain
from .walks import Index, Source, Walker, affine, batch_index, chained, forward_through, is_dense


@dataclass(frozen=True)
class Operand:
    """A value viewed as [z1, z2 / group, rows, width], with strides along the first three axes."""

    name: str
    strides: tuple[int, int, int]
    scale: float
    steps: int
    group: int


def operands(walker: Walker, chain: Chain, sizes) -> list[Operand] | None:
    """q, k, v; None if one of them has another layout.

    Args:
      sizes: z1, z2, m, n, d, e as in kernels/attention/layout.py.
    """
    z1, z2, m, n, d, e = sizes
    q, k = chain.scores.inputs[:2]
    v = chain.product.inputs[1]
    ta, tb = (bool(chain.scores.attrs.get(f)) for f in ("ta", "tb"))
    candidates = [
        _operand(walker, q, _left(walker, chain.scores, m, ta), (z1, z2, m, d), 1),
        _operand(walker, k, _right(walker, chain.scores, m, n, not tb), (z1, z2, n, d)),
        _operand(
            walker,
            v,
            _right(walker, chain.product, m, e, bool(chain.product.attrs.get("tb"))),
            (z1, z2, n, e),
        ),
    ]
    known = [operand for operand in candidates if operand is not None]
    return known if len(known) == 3 and known[1].group == known[2].group else None


def _left(walker: Walker, node: Node, m: int, turned: bool) -> Index | None:
    """(head, query, number) -> linear index in a product's first operand."""
    a, y = (walker.graph.values[x].shape for x in (node.inputs[0], node.outputs[0]))
    rows, width = y[-2], a[-2 if turned else -1]
    batch = batch_index(y[:-2], a[:-2])
    if rows % m:
        return None

    def at(head, i, c):
        row = head * m + i
        first, r = batch(row // rows), row % rows
        return (first * width + c) * rows + r if turned else (first * rows + r) * width + c

    return at


def _right(walker: Walker, node: Node, m: int, columns: int, turned: bool) -> Index | None:
    """(head, key, number) -> linear index in a product's second operand; turned: keys are its
    last axis.
    """
    b, y = (walker.graph.values[x].shape for x in (node.inputs[1], node.outputs[0]))
    rows = y[-2]
    batch = batch_index(y[:-2], b[:-2])
    keys, width = (b[-1], b[-2]) if turned else (b[-2], b[-1])
    if rows % m:
        return None

    def at(head, j, c):
        first = batch(head * m // rows)
        return (first * width + c) * keys + j if turned else (first * keys + j) * width + c

    return at


def _operand(
    walker: Walker, name: str, index_of: Index | None, sizes, group: int = 0
) -> Operand | None:
    """The farthest source value that an operand is a dense rearrangement of; group 0: any."""
    if index_of is None:
        return None
    z1, z2, rows, width = sizes
    best = None
    for source in walker.sources(name):
        value = walker.graph.values[source.name]
        if value.role != "activation" or value.dtype != "f32":
            break
        shared = group or _repeats(index_of, source, z2)
        strides = _strides(index_of, source, (z1, z2 // shared, rows, width), z2, shared)
        if strides and value.size == z1 * (z2 // shared) * rows * width:
            places = strides[0], strides[1], strides[2]
            best = Operand(source.name, places, source.scale, source.steps, shared)
    return best


def _repeats(index_of: Index, source: Source, z2: int) -> int:
    """Number of consecutive identical heads."""
    heads = np.arange(z2)
    places = source.back(index_of(heads, np.zeros_like(heads), np.zeros_like(heads)))
    changed = np.flatnonzero(places != places[0])
    group = int(changed[0]) if changed.size else z2
    return group if z2 % group == 0 else 1


def _strides(index_of: Index, source: Source, sizes, z2: int, group: int) -> tuple[int, ...] | None:
    def place(z, h, r, c):
        return source.back(index_of(z * z2 + h * group, r, c))

    def last(z, h, r, c):
        return source.back(index_of(z * z2 + h * group + group - 1, r, c))

    strides = affine(place, sizes)
    if strides is None or group > 1 and affine(last, sizes) != strides:
        return None
    if not is_dense(sizes, strides) or sizes[3] > 1 and strides[3] != 1:
        return None
    return tuple(strides)


def output(walker: Walker, chain: Chain, sizes) -> tuple[str, tuple[int, ...], list[str]]:
    """(the written value, its strides, nodes no longer needed)."""
    z1, z2, m, e = sizes
    name = chain.product.outputs[0]
    gone: list[str] = []
    best: tuple[str, tuple[int, ...], list[str]] = name, (z2 * m * e, m * e, e), []

    def at(index: Index) -> Index:
        return lambda z, h, i, c: index(((z * z2 + h) * m + i) * e + c)

    index: Index = lambda linear: linear  # noqa: E731
    while (node := walker.only_reader(name)) is not None:
        step = forward_through(node)
        if step is None:
            break
        index, name = chained(index, step), node.outputs[0]
        gone.append(node.name)
        if node.op == "view":
            continue
        strides = affine(at(index), sizes)
        if strides is None or e > 1 and strides[3] != 1 or not is_dense(sizes, strides):
            break
        best = name, tuple(strides[:3]), list(gone)
    return best
