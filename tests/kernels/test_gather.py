"""Gather along an axis and its gradient; indices of all kinds."""

import numpy as np
import pytest

from edgetrain.formats import INT8, decoded

from . import naive_gather as naive
from .harness import DTYPES, control, same_for_threads

SHAPES = [(1, 1, 1), (1, 50, 33), (3, 7, 1), (5, 4, 130)]


def _case(rng, shape):
    outer, axis, inner = shape
    idx = rng.integers(-axis - 1, axis + 2, 40).astype(np.int32)
    idx[:2] = [2**31 - 1, -(2**31)]
    return idx, {"outer": outer, "axis": axis, "inner": inner, "count": idx.size}


@pytest.mark.parametrize("storage", ["f32", "f16", "i32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gather_equals_naive_and_reads_nothing_outside(rng, shape, storage):
    idx, sizes = _case(rng, shape)
    x = (rng.normal(size=shape) * 100).astype(DTYPES[storage])
    expected = naive.gather(x, idx)
    y = same_for_threads(
        "gather", {"W": storage, "S": storage}, x=x, idx=idx, y=expected.shape, **sizes
    )["y"]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("padding", [-1, 0])
@pytest.mark.parametrize("shape", SHAPES)
def test_gather_gradient_equals_naive(rng, shape, padding, storage):
    idx, sizes = _case(rng, shape)
    dy = rng.normal(size=(shape[0], idx.size, shape[2])).astype(DTYPES[storage])
    dx = rng.normal(size=shape).astype(np.float32)
    found = same_for_threads(
        "gather_bwd", {"S": storage, "G": "f32"}, idx=idx, dy=dy, dx=dx, key=0, sr=0,
        padding=padding, **sizes,
    )["dx"]  # fmt: skip
    np.testing.assert_allclose(found, naive.gather_bwd(idx, dy, dx, padding), rtol=1e-5, atol=1e-5)


def test_gather_gradient_rounds_without_bias_in_half_precision():
    count, inner = 3000, 64
    dy = np.full((1, count, inner), 2.0**-12, np.float16)
    dx = np.ones((1, 1, inner), np.float16)
    found = same_for_threads(
        "gather_bwd", {"S": "f16", "G": "f16"}, idx=np.zeros(count, np.int32), dy=dy, dx=dx,
        ctl=control(SEED=1), key=1, sr=1, outer=1, axis=1, inner=inner, count=count, padding=-1,
    )["dx"]  # fmt: skip
    # Rounding to nearest would lose every term. One step is 2^-10 with probability 1/4: the mean of
    # 64 columns has a standard deviation below 0.003.
    assert abs(found.astype(np.float64).mean() - (1 + count * 2.0**-12)) < 0.015


@pytest.mark.parametrize("shape", [(1, 50, 33), (1, 9, 64), (5, 4, 130)])
def test_rows_of_blocks_and_their_gradient_are_within_a_step_of_the_twin(rng, shape):
    idx, sizes = _case(rng, shape)
    x = rng.normal(size=shape).astype(np.float32)
    stored = INT8.encode(x)
    x = decoded(stored, shape)
    expected = naive.gather(x, idx)
    storages = {"W": "q8", "S": "f32"}
    y = same_for_threads("gather", storages, x=stored, idx=idx, y=expected.shape, **sizes)["y"]
    np.testing.assert_array_equal(y, expected)
    dy = rng.normal(size=(shape[0], idx.size, shape[2])).astype(np.float32)
    found = same_for_threads(
        "gather_bwd", {"S": "f32", "G": "q8"}, idx=idx, dy=dy, dx=stored, ctl=control(SEED=1),
        key=1, sr=1, padding=-1, **sizes,
    )["dx"]  # fmt: skip
    found, dense = decoded(found, shape), naive.gather_bwd(idx, dy, x, -1)
    step = np.abs(dense).max() / 64  # upper bound; a number is rounded whenever its block is
    assert np.abs(found - dense).max() < 40 * step and np.abs((found - dense).mean()) < step / 4
    untouched = np.ones(shape[1], bool)
    untouched[[at for _, at in naive.valid(idx, shape[1])]] = False
    if shape[2] % 64 == 0:
        np.testing.assert_array_equal(found[:, untouched], x[:, untouched])
