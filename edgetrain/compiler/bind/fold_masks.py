"""Folds nodes that build masks and position tables: products, gathers, scatters.

As in fold.py, the size of a result is known in advance.
"""

import numpy as np

from ...ops.strides import prod


def gather_nd(node, inputs):
    """GatherND: the last axis of the indices holds one index per indexed axis."""
    data, where = _picked(node, *inputs)
    return data[where]


def _picked(node, data, index):
    """The array, and its indices: one array per axis."""
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
    return data, (*outer, *np.moveaxis(index.astype(np.int64), -1, 0))


def gathered_nd(node, inputs) -> int:
    """Number of elements that `gather_nd` returns."""
    data, index = inputs
    batch = int(node.attrs.get("batch_dims", 0))
    return prod(index.shape[:-1]) * prod(data.shape[batch + index.shape[-1] :])


def gather_elements(node, inputs):
    """GatherElements: index along one axis, per element."""
    data, index = inputs
    axis = int(node.attrs.get("axis", 0)) % data.ndim
    size = data.shape[axis]
    if index.size and (index.min() < -size or index.max() >= size):
        raise node.fail(f"indices from {index.min()} to {index.max()}", f"[{-size}, {size})")
    part = [slice(None) if k == axis else slice(d) for k, d in enumerate(index.shape)]
    return np.take_along_axis(data[tuple(part)], index.astype(np.int64), axis)


def scatter_nd(node, inputs):
    """ScatterND: a copy with some parts replaced."""
    data, index, updates = inputs
    if node.attrs.get("reduction", "none") not in ("none", b"none"):
        raise node.fail(f"reduction {node.attrs['reduction']!r}", "none for constants")
    out = np.array(data)
    out[_picked(node, data, index)[1]] = updates
    return out


def matmul(node, inputs):
    """A product of constants, such as angles from frequencies and positions."""
    return np.matmul(*inputs)


def multiplied(node, inputs) -> int:
    """Number of multiplications, which exceeds the number of elements."""
    a, b = inputs
    return prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2])) * prod(
        (*a.shape[-2:], *b.shape[-1:])
    )
