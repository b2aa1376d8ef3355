"""Rules for which operands of a node run along time: given any layout, they derive all of them.

Each rule belongs to an op's structure. It gets a `Look` at a node and returns the layout of every
input and output that runs along time; other operands are the same in every segment. None: the node
mixes time steps, or nothing is known yet; it stays whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...ir import Node, Value
from ...ops.registry import structure
from ...ops.structure import Structure
from .layout import Axis, Move, axis_of, inner_of, source_inner, unfold

Layouts = Mapping[str, int]


@dataclass(frozen=True)
class Look:
    """A node, the values around it, the number of time steps, and the layouts known so far."""

    node: Node
    values: Mapping[str, Value]
    steps: int
    known: Layouts

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def axis(self, name: str) -> Axis | None:
        """The dimension with time, of a value whose layout is known; else None."""
        if not name or name not in self.known:
            return None
        return axis_of(self.shape(name), self.known[name], self.steps)


Rule = Callable[[Look], dict[str, int] | None]


def is_recurrent(node: Node) -> bool:
    """Whether a node processes a sequence step by step."""
    return structure(node) is Structure.RECURRENT


def recurrent(look: Look) -> dict[str, int]:
    """Time is the first dimension of x and y, the second of gates and cells."""
    node = look.node
    made = dict(zip(node.attrs["made"], node.outputs, strict=True))
    result = {}
    for name in (node.inputs[0], *(made[k] for k in ("y", "gates", "cells") if k in made)):
        sides = 1 if name in (node.inputs[0], made["y"]) else node.attrs["d"]
        result[name] = look.values[name].size // look.steps // sides
    return result


def _same(look: Look) -> dict[str, int] | None:
    """All operands have the same number of elements, in the same order."""
    names = (*look.node.reads, *look.node.writes)
    inner = next((look.known[name] for name in names if name in look.known), None)
    return None if inner is None else dict.fromkeys(names, inner)


def _broadcast(look: Look) -> dict[str, int] | None:
    """Operands broadcast to the output; an operand without a time dimension is always the same."""
    (y,) = look.node.outputs
    rank = len(look.shape(y))
    axis = look.axis(y)
    for name in look.node.reads:
        result = look.axis(name)
        if axis is None and result:
            axis = result._replace(place=result.place + rank - len(look.shape(name)))
    if axis is None:
        return None
    size, found_all = look.shape(y)[axis.place], {y: inner_of(look.shape(y), axis)}
    for name in look.node.reads:
        shape = look.shape(name)
        index = axis.place - rank + len(shape)
        if index < 0 or shape[index] == 1:
            continue
        if shape[index] != size:
            return None
        found_all[name] = inner_of(shape, axis._replace(place=index))
    return found_all if axis_of(look.shape(y), found_all[y], look.steps) == axis else None


def _matmul(look: Look) -> dict[str, int] | None:
    """Time is among the rows, the columns or the batch; it is never summed over."""
    node = look.node
    (a, b), (y,) = node.inputs[:2], node.outputs
    rank = len(look.shape(y))
    ranks = {name: len(look.shape(name)) for name in (a, b)}
    # rows and columns of the product -> dimension of a, of b
    rows = ranks[a] - (1 if node.attrs.get("ta") else 2)
    columns = ranks[b] - (2 if node.attrs.get("tb") else 1)
    axis = look.axis(y)
    for name, own, place in ((a, rows, rank - 2), (b, columns, rank - 1)):
        operand_axis = look.axis(name)
        if axis is None and operand_axis:
            batch = operand_axis.place < ranks[name] - 2
            if not batch and operand_axis.place != own:
                return None
            axis = operand_axis._replace(
                place=operand_axis.place + rank - ranks[name] if batch else place,
            )
    if axis is None or axis.place == rank - 1 and any(node.inputs[2:]):
        return None
    out = {y: inner_of(look.shape(y), axis)}
    for name, own, place in ((a, rows, rank - 2), (b, columns, rank - 1)):
        index = own if axis.place == place else axis.place - rank + ranks[name]
        shape = look.shape(name)
        batch = axis.place < rank - 2 and index >= 0 and shape[index] != 1
        if axis.place == place or batch:
            out[name] = inner_of(shape, axis._replace(place=index))
    return out


def _gather(look: Look) -> dict[str, int] | None:
    x, index = look.node.inputs
    (y,) = look.node.outputs
    along, many = look.node.attrs["axis"], len(look.shape(index))
    axis, of_x, of_index = look.axis(y), look.axis(x), look.axis(index)
    if axis is None and of_index:
        axis = of_index._replace(place=of_index.place + along)
    if axis is None and of_x:
        if of_x.place == along:
            return None
        axis = of_x._replace(place=of_x.place + (many - 1 if of_x.place > along else 0))
    if axis is None:
        return None
    out = {y: inner_of(look.shape(y), axis)}
    if along <= axis.place < along + many:
        out[index] = inner_of(look.shape(index), axis._replace(place=axis.place - along))
    else:
        place = axis.place if axis.place < along else axis.place - many + 1
        out[x] = inner_of(look.shape(x), axis._replace(place=place))
    return out


def _along(look: Look) -> dict[str, int] | None:
    """Softmax over a dimension other than time."""
    result = _same(look)
    if result is None:
        return None
    axis = axis_of(look.shape(look.node.outputs[0]), [*result.values()][0], look.steps)
    return result if axis and axis.place != look.node.attrs["axis"] else None


def _rows(look: Look) -> dict[str, int] | None:
    """Each row of n elements is normalised independently."""
    x, (y, stat) = look.node.inputs[0], look.node.outputs
    n = look.node.attrs["n"]
    inner = next((look.known[name] for name in (x, y) if name in look.known), None)
    if inner is None and stat in look.known:
        inner = look.known[stat] * n
    if inner is None or inner % n:
        return None
    return {x: inner, y: inner, stat: inner // n}


def _reduced(look: Look) -> dict[str, int] | None:
    """A reduction over dimensions other than time."""
    (x,), (y,) = look.node.inputs, look.node.outputs
    axes, shape = look.node.attrs["axes"], look.shape(x)
    kept = tuple(1 if k in axes else d for k, d in enumerate(shape))
    axis = look.axis(x)
    if axis is None and y in look.known:
        axis = axis_of(kept, look.known[y], look.steps)
    if axis is None or axis.place in axes:
        return None
    return {x: inner_of(shape, axis), y: inner_of(kept, axis)}


def moves_of(node: Node) -> list[Move]:
    """The walks of a `copy`."""
    return [
        Move(source, xo, yo, tuple(dims), tuple(xs), tuple(ys))
        for source, xo, yo, dims, xs, ys in node.attrs["moves"]
    ]


def _copy(look: Look) -> dict[str, int] | None:
    """Every walk takes all time steps in order; other dimensions may move anywhere."""
    node, (y,) = look.node, look.node.outputs
    moves = moves_of(node)
    inner = look.known.get(y)
    if inner is None:
        for move in moves:
            known = look.known.get(node.inputs[move.source])
            if known is not None:
                unfolded = unfold(move.turned(), known, look.steps)
                inner = unfolded and source_inner(*unfolded, look.steps)
                break
    if not inner or axis_of(look.shape(y), inner, look.steps) is None:
        return None
    out = {y: inner}
    for move in moves:
        unfolded = unfold(move, inner, look.steps)
        source_layout = unfolded and source_inner(*unfolded, look.steps)
        name = node.inputs[move.source]
        if not source_layout or out.setdefault(name, source_layout) != source_layout:
            return None
    return out


RULES: dict[Structure, Rule] = {
    Structure.RECURRENT: recurrent,
    Structure.SAME: _same,
    Structure.VIEW: _same,
    Structure.BROADCAST: _broadcast,
    Structure.PRODUCT: _matmul,
    Structure.TAKE: _gather,
    Structure.WALK: _copy,
    Structure.ALONG: _along,
    Structure.ROWS: _rows,
    Structure.REDUCED: _reduced,
}


def layouts_of(look: Look) -> dict[str, int] | None:
    """The layouts from the rule for the node's op; None if unknown, or if one can't be cut."""
    of_op = structure(look.node)
    result = RULES[of_op](look) if of_op else None
    if result is None:
        return None
    fits = all(axis_of(look.shape(n), inner, look.steps) for n, inner in result.items())
    return result if fits else None


def names_of(node: Node) -> Sequence[str]:
    """Every value that the node touches."""
    return dict.fromkeys((*node.reads, *node.writes)).keys()  # type: ignore[return-value]
