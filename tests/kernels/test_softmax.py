"""softmax, log_softmax and their gradients compared with float64."""

import numpy as np
import pytest

from . import naive_softmax as naive
from .harness import DTYPES, same_for_threads

SHAPES = [(1, 1, 1), (7, 10, 1), (3, 255, 1), (2, 1000, 1), (2, 5, 3), (3, 17, 260), (1, 1, 300)]


def _sizes(shape):
    return dict(zip(("outer", "n", "inner"), shape, strict=True))


def _tolerance(storage):
    return {"rtol": 1e-3, "atol": 1e-4} if storage == "f16" else {"rtol": 3e-6, "atol": 1e-6}


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_and_gradient_equal_naive(rng, name, shape, storage):
    dtype = DTYPES[storage]
    x = (rng.normal(size=shape) * 5).astype(dtype)
    y = same_for_threads(name, {"S": storage}, x=x, y=shape, **_sizes(shape))["y"]
    expected = getattr(naive, name)(x.astype(np.float64))
    np.testing.assert_allclose(y.astype(np.float64), expected, **_tolerance(storage))
    inside = same_for_threads(name, {"S": storage}, x=x, y="x", **_sizes(shape))["y"]
    assert inside.tobytes() == y.tobytes()
    dy, dx = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    for acc in (0, 1):
        found = same_for_threads(
            f"{name}_bwd", {"S": storage}, y=y, dy=dy, dx=dx, acc=acc, **_sizes(shape)
        )["dx"]
        back = getattr(naive, f"{name}_bwd")(y.astype(np.float64), dy.astype(np.float64))
        scale = np.abs(dy.astype(np.float64)).sum(axis=1).max()
        limit = 1e-3 if storage == "f16" else 1e-6
        np.testing.assert_allclose(
            found.astype(np.float64), back + acc * dx, rtol=limit, atol=limit * (1 + scale / 10)
        )


@pytest.mark.parametrize("shape", [(2, 300, 1), (2, 5, 7)])
def test_softmax_of_masked_and_of_bad_rows(shape):
    x = np.zeros(shape, np.float32)
    x[0, 1:] = -np.inf
    x[1, 2] = np.nan
    y = same_for_threads("softmax", {"S": "f32"}, x=x, y=shape, **_sizes(shape))["y"]
    assert (y[0, 0] == 1).all() and (y[0, 1:] == 0).all() and np.isnan(y[1]).any()
