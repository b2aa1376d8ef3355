"""ScatterND and ScatterElements: write updates at indexed rows. Saved: the indices.

Constant indices become copies of runs of rows. If there are many runs, or indices are computed,
rows are added to zeros and a mask chooses between them and the data. If indices name a row twice,
the last update wins for constant indices; for computed ones (forbidden by ONNX) updates are summed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..ir import Node, Value
from . import samples
from .gather import chosen, computed_rows, element_numbers, every_row, known_rows
from .integers import as_floats, as_integers, number
from .movement import copy_of
from .onnx_ops import Fold, onnx_rule
from .registry import Adding, register
from .strides import prod

_RUNS = 64  # most copies per node


class Scatter(Adding):
    """y [outer, rows, inner] = rows of u [outer, count, inner] added where idx says, else 0."""

    def vjp(self, grads, node: Node) -> None:
        u, idx = node.inputs
        dy = grads.of(node.outputs[0])
        if dy and grads.needs(u):
            part = grads.builder.value(f"{u}.picked", grads.value(u).shape, "f32", "gradient")
            grads.emit("gather", [dy, idx], [part], {"axis": 1})
            grads.alias(u, part)


register(
    Scatter(
        "scatter",
        "dy idx -> dx",
        every_row,
        kernel="gather_bwd",
        cost=1,
        samples=samples.scattered,
    )
)


class _Rows(NamedTuple):
    """The data as [outer, rows, inner]."""

    outer: int
    rows: int
    inner: int


def _indexed(context, node, rank: int) -> tuple[range, str]:
    return range(rank), "written by index"


def _replaced(node, inputs):
    data, index, updates = inputs
    if node.attrs.get("reduction", "none") not in ("none", b"none"):
        raise node.fail(f"reduction {node.attrs['reduction']!r}", "none for constants")
    out = np.array(data)
    out[chosen(node, data, index)] = updates
    return out


@onnx_rule("ScatterND", weights=(0, 2), joined=_indexed, fold=Fold(_replaced, work=16))
def scatter_nd(context, node) -> None:
    x, u, known = context.value(node, 0), context.value(node, 2), context.const(node, 1)
    lead = known.shape if known is not None else context.value(node, 1).shape
    depth = (lead or (0,))[-1]
    if not 0 < depth <= len(x.shape) or u.shape != (*lead[:-1], *x.shape[depth:]):
        raise node.fail(
            f"indices of shape {list(lead)} and updates of shape {list(u.shape)} into "
            f"{list(x.shape)}",
            "one row of updates per index",
        )
    sizes = x.shape[:depth]
    parts = _Rows(1, prod(sizes), prod(x.shape[depth:]))
    if known is not None:
        _known(context, node, x, u, known_rows(context, node, known, (), sizes).ravel(), parts)
    else:
        _computed(context, node, x, u, computed_rows(context, node, (), sizes), parts)


def _written(context, node, rank: int) -> tuple[Sequence[int], str]:
    """With constant indices, only the first samples are written."""
    if context.array(node.inputs[1]) is not None:
        return range(rank), "written at constant places"
    return (node.axis(node.attrs.get("axis", 0), rank),), "written by index"


@onnx_rule("ScatterElements", weights=(0, 2), joined=_written)
def scatter_elements(context, node) -> None:
    x, u, known = context.value(node, 0), context.value(node, 2), context.const(node, 1)
    shape = known.shape if known is not None else context.value(node, 1).shape
    if u.shape != shape:
        raise node.fail(
            f"updates have shape {list(u.shape)}", f"that of the indices, {list(shape)}"
        )
    places, where = element_numbers(context, node, x)
    axis = node.axis(node.attrs.get("axis", 0), len(x.shape))
    whole = all(a == b for k, (a, b) in enumerate(zip(shape, x.shape, strict=True)) if k != axis)
    if known is None or places is None:
        _computed(context, node, x, u, context.named(where), _Rows(1, x.size, 1))
    elif whole and np.array_equal(known, _first(known, axis)):
        parts = _Rows(prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
        rows = _first(known, axis)[(0,) * axis].reshape(shape[axis], -1)[:, 0]
        _known(context, node, x, u, rows % x.shape[axis], parts)
    else:
        _known(context, node, x, u, places.ravel(), _Rows(1, x.size, 1))


def _first(known: np.ndarray, axis: int) -> np.ndarray:
    """For each position along the axis, its first index, in the shape of all indices."""
    places = tuple(slice(None) if k == axis else slice(1) for k in range(known.ndim))
    return np.broadcast_to(known[places], known.shape)


def _adds(node) -> bool:
    result = node.attrs.get("reduction", "none") or "none"
    if result not in ("none", "add"):
        raise node.fail(f"reduction {result!r}", "none or add")
    return bool(result == "add")


def _known(context, node, x: Value, u: Value, rows: np.ndarray, parts: _Rows) -> None:
    """Constant row numbers; each run of consecutive rows is a copy."""
    context.room(node, parts.rows + rows.size, 8, weight=8)
    owner = np.full(parts.rows, -1, np.int64)
    owner[rows] = np.arange(rows.size)
    new = owner[1:] != np.where(owner[:-1] < 0, -1, owner[:-1] + 1)
    starts = [0, *(np.flatnonzero(new) + 1).tolist()]
    if _adds(node) or len(starts) > _RUNS:
        # An index repeated later writes nothing.
        last = rows if _adds(node) else np.where(owner[rows] == np.arange(rows.size), rows, -1)
        last = np.where(last < 0, parts.rows, last)
        index = context.named(context.constant(node, "indices", last.astype(np.int32)))
        mask = context.constant(node, "mask", (owner >= 0).reshape(-1, 1))
        _chosen(context, node, x, _scattered(context, node, u, index, parts), mask, parts)
        return
    moves = []
    for start, stop in zip(starts, [*starts[1:], parts.rows], strict=True):
        source, first = (0, start) if owner[start] < 0 else (1, int(owner[start]))
        step = (parts.rows, rows.size)[source] * parts.inner
        dims = (parts.outer, (stop - start) * parts.inner)
        places = first * parts.inner, start * parts.inner
        moves.append((source, *places, dims, (step, 1), (parts.rows * parts.inner, 1)))
    if all(move[0] for move in moves):
        copy_of(context, node, [u], x.shape, [(0, *move[1:]) for move in moves])
    else:
        copy_of(context, node, [x, u], x.shape, moves)


def _computed(context, node, x: Value, u: Value, index: Value, parts: _Rows) -> None:
    """Row numbers computed by the model."""
    made = _scattered(context, node, u, index, parts)
    mask = ""
    if not _adds(node):
        ones = number(context, node, np.ones((1, prod(index.shape), 1)))
        named = _Rows(1, parts.rows, 1)
        hits = _scattered(context, node, ones, index, named, "hits", "statistic")
        mask = context.temporary(node, "mask", named, "u8")
        context.emit(node, "truth", [hits], [named], {"want": 1}, outputs=[mask])
    _chosen(context, node, x, made, mask, parts)


def _scattered(
    context, node, u: Value, index: Value, parts: _Rows, tag="scattered", role="activation"
) -> Value:
    """Updates written into rows of zeros, as floats."""
    count = prod(index.shape)
    u = as_floats(context, node, u)
    u = context.named(context.reshaped(node, u, (parts.outer, count, parts.inner)))
    out = context.temporary(node, tag, parts, role=role)
    attrs = {"axis": 1, "acc": 0}
    context.emit(node, "scatter", [u, index], [parts], attrs, outputs=[out])
    return context.named(out)


def _chosen(context, node, x: Value, made: Value, mask: str, parts: _Rows) -> None:
    """The node's output: scattered values where the mask is set, else the data; or their sum."""
    data = as_floats(context, node, x)
    data = context.named(context.reshaped(node, data, parts))
    out = context.temporary(node, "chosen", parts)
    if _adds(node):
        context.emit(node, "add", [data, made], [parts], outputs=[out])
    else:
        context.emit(node, "where", [mask, made, data], [parts], outputs=[out])
    if x.dtype != "f32":
        out = as_integers(context, node, context.named(out)).name
    context.view(node, out, x.shape)
