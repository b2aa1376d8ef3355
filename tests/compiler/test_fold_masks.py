"""Folding of masks and position tables, compared with naive loops."""

import itertools

import numpy as np
import pytest

from edgetrain.compiler.bind.fold import fold
from edgetrain.errors import ModelError
from edgetrain.ops.allowance import Allowance
from edgetrain.ops.onnx_ops import OnnxNode


def folded(op, *inputs, **attrs):
    node = OnnxNode("node", op, tuple("abc"[: len(inputs)]), ("y",), attrs)
    (out,) = fold(node, list(inputs), Allowance())
    return out


def naive_gather_nd(data, index, batch):
    out = np.empty((*index.shape[:-1], *data.shape[batch + index.shape[-1] :]), data.dtype)
    for at in itertools.product(*map(range, index.shape[:-1])):
        out[at] = data[(*at[:batch], *index[at])]
    return out


@pytest.mark.parametrize(
    ("shape", "index", "batch"),
    [
        ((3, 4, 5), (2, 2), 0), ((3, 4, 5), (6, 3), 0), ((3, 4), (3, 2, 1), 1),
        ((2, 3, 4, 5), (2, 3, 7, 2), 2), ((2, 5), (1, 1, 4, 4, 2), 0),
    ],
)  # fmt: skip
def test_gather_nd_picks_along_several_axes(shape, index, batch):
    rng = np.random.default_rng(0)
    data = rng.normal(size=shape)
    depth = index[-1]
    sizes = shape[batch : batch + depth]
    where = np.stack([rng.integers(-n, n, index[:-1]) for n in sizes], -1)
    found = folded("GatherND", data, where, batch_dims=batch)
    np.testing.assert_array_equal(found, naive_gather_nd(data, where, batch))
    where.flat[0] = shape[batch]
    with pytest.raises(ModelError, match="an index outside"):
        folded("GatherND", data, where, batch_dims=batch)


@pytest.mark.parametrize(("index", "axis"), [((3, 2, 5), 1), ((2, 4, 3), -1), ((7, 1, 5), 0)])
def test_gather_elements_picks_along_one_axis(index, axis):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(3, 4, 5))
    size = data.shape[axis]
    where = rng.integers(-size, size, index)
    found = folded("GatherElements", data, where, axis=axis)
    expected = np.empty(index)
    for at in np.ndindex(*index):
        place = list(at)
        place[axis] = where[at]
        expected[at] = data[tuple(place)]
    np.testing.assert_array_equal(found, expected)
    where.flat[0] = size
    with pytest.raises(ModelError, match="indices from"):
        folded("GatherElements", data, where, axis=axis)


def test_scatter_nd_replaces_parts():
    rng = np.random.default_rng(0)
    data, updates = rng.normal(size=(4, 3)), rng.normal(size=(2, 3))
    index = np.array([[3], [0]])
    found = folded("ScatterND", data, index, updates)
    expected = data.copy()
    expected[[3, 0]] = updates
    np.testing.assert_array_equal(found, expected)
    assert found is not data
    with pytest.raises(ModelError, match="expected none"):
        folded("ScatterND", data, index, updates, reduction="add")


def test_matmul_and_isnan_of_constants_are_numpys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 1)), rng.normal(size=(2, 1, 4))
    np.testing.assert_array_equal(folded("MatMul", a, b), a @ b)
    values = np.array([1.0, np.nan, np.inf])
    np.testing.assert_array_equal(folded("IsNaN", values), [False, True, False])


def test_a_product_of_constants_counts_its_terms():
    with pytest.raises(ModelError, match="constants of 8000000000 bytes"):
        folded("MatMul", np.zeros((1000, 1000)), np.zeros((1000, 1000)))
