"""Gather by integer indices (embeddings): rows of x along one axis or more. Saved: the indices."""

import numpy as np

from ..ir import Value
from . import samples
from .integers import EXACT, as_floats, as_integers, computed, number
from .movement import copy_of
from .onnx_ops import Fold, Use, axis_of, onnx_rule
from .registry import Adding, Op, register
from .softmax import split_at
from .strides import contiguous, prod
from .structure import Structure


def _sizes(values, attrs) -> dict[str, int]:
    parts = split_at(values["x"].shape, attrs["axis"])
    sizes = {"outer": parts["outer"], "axis": parts["n"], "inner": parts["inner"]}
    return sizes | {"count": values["idx"].size}


def every_row(values, attrs) -> dict[str, int]:
    """Sizes for a kernel that treats no index as padding."""
    return _sizes(values, attrs) | {"padding": -1}


# y = x taken at idx along attrs['axis']; dx (+)= each row of dy, added to the row it came from.
register(
    Op(
        "gather", "x idx -> y", _sizes, cost=0, gradient="dy idx", samples=samples.gathered,
        structure=Structure.TAKE, sparse="gather_csr", weight=0, chooses=True,
    )
)  # fmt: skip
register(Adding("gather_bwd", "dy idx -> dx", every_row, cost=1, rounds=True))


def _taken(node, inputs):
    data, index = inputs
    axis = node.attrs.get("axis", 0)
    size = data.shape[axis]
    if index.size and (index.min() < -size or index.max() >= size):
        raise node.fail(f"indices from {index.min()} to {index.max()}", f"[{-size}, {size})")
    return np.take(data, index.astype(np.int64), axis=axis)


def _taken_size(node, inputs) -> int:
    data, index = inputs
    return index.size * (data.size // max(1, data.shape[node.attrs.get("axis", 0)]))


@onnx_rule(
    "Gather",
    weights=(0,),
    use=Use.TABLE,
    names={0: "weight"},
    moves=True,
    joined=axis_of(0, "gathered over"),
    fold=Fold(_taken, _taken_size, work=8),
)
def gather(context, node) -> None:
    x = context.value(node, 0)
    axis = node.axis(node.attrs.get("axis", 0), len(x.shape))
    index = context.const(node, 1)
    if index is None:
        indices = context.value(node, 1)
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        context.emit(node, "gather", [x, indices], [shape], {"axis": axis}, dtype=x.dtype)
        return
    size = x.shape[axis]
    context.room(node, index.size, weight=8)
    if index.size == 0 or index.min() < -size or index.max() >= size:
        raise node.fail(
            f"the indices {index.ravel()[:5].tolist()}", f"values from -{size} to {size - 1}"
        )
    if index.size == 1:  # One row: a slice.
        strides = contiguous(x.shape)
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        dims = [1 if k == axis else d for k, d in enumerate(x.shape)]
        offset = int(index.ravel()[0]) % size * strides[axis]
        copy_of(context, node, [x], shape, [(0, offset, 0, dims, strides, contiguous(dims))])
        return
    indices = context.constant(node, "indices", (index % size).astype(np.int32))
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    context.emit(node, "gather", [x, indices], [shape], {"axis": axis}, dtype=x.dtype)


def _gathered(context, node, rank: int) -> tuple[range, str]:
    return range(int(node.attrs.get("batch_dims", 0)), rank), "gathered over"


def chosen(node, data, index) -> tuple[np.ndarray, ...]:
    """Constant indices over several axes, as one array per axis of constant data.

    Raises:
      ModelError: they don't fit the data.
    """
    batch = int(node.attrs.get("batch_dims", 0))
    depth = index.shape[-1]
    if not 0 <= batch < min(data.ndim, index.ndim) or batch + depth > data.ndim:
        raise node.fail(
            f"indices of shape {list(index.shape)} for {list(data.shape)}", "existing axes"
        )
    sizes = np.array(data.shape[batch : batch + depth])
    if index.size and np.any((index < -sizes) | (index >= sizes)):
        raise node.fail(f"an index outside of {sizes.tolist()}", "indices in range")
    shape = index.shape[:-1]
    outer = [
        np.arange(data.shape[k]).reshape([-1 if k == j else 1 for j in range(len(shape))])
        for k in range(batch)
    ]
    return (*outer, *np.moveaxis(index.astype(np.int64), -1, 0))


def _chosen_size(node, inputs) -> int:
    data, index = inputs
    batch = int(node.attrs.get("batch_dims", 0))
    return prod(index.shape[:-1]) * prod(data.shape[batch + index.shape[-1] :])


_BY_INDEX = Fold(lambda node, inputs: inputs[0][chosen(node, *inputs)], _chosen_size, work=16)


@onnx_rule("GatherND", weights=(0,), moves=True, joined=_gathered, fold=_BY_INDEX)
def gather_nd(context, node) -> None:
    """Convert indices over several axes to row numbers of x, flattened over these axes."""
    x, known = context.value(node, 0), context.const(node, 1)
    lead = known.shape if known is not None else context.value(node, 1).shape
    batch, depth = int(node.attrs.get("batch_dims", 0)), (lead or (0,))[-1]
    if not 0 <= batch < min(len(x.shape), len(lead)) or not 0 < depth <= len(x.shape) - batch:
        raise node.fail(f"indices of shape {list(lead)} for {list(x.shape)}", "existing axes")
    if tuple(lead[:batch]) != tuple(x.shape[:batch]):
        raise node.fail(f"indices of shape {list(lead)}", f"leading axes {list(x.shape[:batch])}")
    sizes, rest = x.shape[batch : batch + depth], x.shape[batch + depth :]
    rows, shape = prod(x.shape[: batch + depth]), (*lead[:-1], *rest)
    if known is not None:
        places = known_rows(context, node, known, x.shape[:batch], sizes)
        if places.size == rows and np.array_equal(places.ravel(), np.arange(rows)):
            context.view(node, x.name, shape)  # every row, in order
            return
        where: Value | str = context.constant(node, "indices", places.astype(np.int32))
    else:
        where = computed_rows(context, node, x.shape[:batch], sizes)
    if (rows, *rest) != x.shape:
        x = context.named(context.reshaped(node, x, (rows, *rest)))
    context.emit(node, "gather", [x, where], [shape], {"axis": 0}, dtype=x.dtype)


def known_rows(context, node, index: np.ndarray, batch, sizes) -> np.ndarray:
    """Constant indices [..., axes] into `batch` x `sizes`, as row numbers."""
    context.room(node, index.size, 8, weight=16)
    low, high = (-np.array(sizes), np.array(sizes))
    if index.size == 0 or np.any((index < low) | (index >= high)):
        raise node.fail(f"constant indices outside of {list(sizes)}", "indices in range")
    places = np.arange(prod(batch)).reshape(*batch, *[1] * (index.ndim - 1 - len(batch)))
    for k, size in enumerate(sizes):
        places = places * size + index[..., k].astype(np.int64) % size
    return places


def computed_rows(context, node, batch, sizes) -> Value:
    """Like `known_rows`, for computed indices (the node's second input)."""
    index = context.value(node, 1)
    if len(sizes) == 1 and not batch:
        return index
    if prod((*batch, *sizes)) > EXACT:
        raise node.fail(f"the table has {prod((*batch, *sizes))} rows", f"at most {EXACT}")
    lead, steps = index.shape[:-1], contiguous(index.shape)[:-1]
    index = as_floats(context, node, index)
    first = np.arange(prod(batch)).reshape(*batch, *[1] * (len(lead) - len(batch)))
    places = number(context, node, first) if batch else None
    for k, size in enumerate(sizes):
        attrs = {"moves": ((0, k, 0, lead, steps, contiguous(lead)),), "fill": None}
        along, count = (
            computed(context, node, "copy", [index], lead, attrs),
            number(context, node, size),
        )
        along = computed(context, node, "mod", [along, count], lead, {"below": size})
        if places is not None:
            before = computed(context, node, "mul", [places, count], places.shape)
            along = computed(context, node, "add", [before, along], lead)
        places = along
    assert places is not None
    return as_integers(context, node, places)


def _single(node, inputs):
    data, index = inputs
    axis = int(node.attrs.get("axis", 0)) % data.ndim
    size = data.shape[axis]
    if index.size and (index.min() < -size or index.max() >= size):
        raise node.fail(f"indices from {index.min()} to {index.max()}", f"[{-size}, {size})")
    part = [slice(None) if k == axis else slice(d) for k, d in enumerate(index.shape)]
    return np.take_along_axis(data[tuple(part)], index.astype(np.int64), axis)


@onnx_rule(
    "GatherElements",
    weights=(0,),
    moves=True,
    joined=axis_of(0, "gathered over"),
    fold=Fold(_single, lambda node, inputs: inputs[1].size, work=16),
)
def gather_elements(context, node) -> None:
    """y[i, j] = x[index[i, j], j] for axis 0, and so on: a gather of single elements of flattened
    x."""
    x = context.value(node, 0)
    known, where = element_numbers(context, node, x)
    if known is not None:
        where = context.constant(node, "indices", known.astype(np.int32))
    shape = known.shape if known is not None else context.named(where).shape
    flat = context.named(context.reshaped(node, x, (x.size,)))
    context.emit(node, "gather", [flat, where], [shape], {"axis": 0}, dtype=x.dtype)


def element_numbers(context, node, x: Value) -> tuple[np.ndarray | None, str]:
    """The elements picked by a node's second input along an axis, as indices into flattened x: an
    array if the node's indices are constant, else the name of a value."""
    known = context.const(node, 1)
    shape = known.shape if known is not None else context.value(node, 1).shape
    axis = node.axis(node.attrs.get("axis", 0), len(x.shape))
    fits = len(shape) == len(x.shape)
    if not fits or any(
        a > b for k, (a, b) in enumerate(zip(shape, x.shape, strict=True)) if k != axis
    ):
        raise node.fail(
            f"indices of shape {list(shape)} for {list(x.shape)}", "the same rank, no longer axes"
        )
    size, steps = x.shape[axis], contiguous(x.shape)
    context.room(node, prod(shape), 8, weight=16)
    first = np.zeros([1 if k == axis else d for k, d in enumerate(shape)], np.int64)
    for k, count in enumerate(shape):
        along = np.arange(count).reshape([-1 if j == k else 1 for j in range(len(shape))])
        first = first if k == axis else first + along * steps[k]
    if known is not None:
        if known.size == 0 or known.min() < -size or known.max() >= size:
            raise node.fail("constant indices out of range", f"values from -{size} to {size - 1}")
        return (known.astype(np.int64) % size) * steps[axis] + first, ""
    if x.size > EXACT:
        raise node.fail(f"the input has {x.size} elements", f"at most {EXACT}")
    index = as_floats(context, node, context.value(node, 1))
    limit = {"below": size}
    index = computed(context, node, "mod", [index, number(context, node, size)], shape, limit)
    index = computed(context, node, "mul", [index, number(context, node, steps[axis])], shape)
    index = computed(context, node, "add", [index, number(context, node, first)], shape)
    return None, as_integers(context, node, index).name
