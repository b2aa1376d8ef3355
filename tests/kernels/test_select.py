"""Comparisons, selection and masks against numpy; running sums and products."""

import numpy as np
import pytest

from edgetrain.kernels.elementwise.select import COMPARE

from . import geometry
from .harness import DTYPES, same_for_threads

RELATIONS = dict(
    zip(
        COMPARE,
        (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.logical_and,
         np.logical_or, np.logical_xor),
        strict=True,
    )
)  # fmt: skip
SHAPE = (3, 1, 4, 5)


def _steps(shape, *arrays):
    return [geometry.broadcast(a.shape, shape) for a in arrays]


def _whole(rng, shape, storage):
    return rng.integers(0, 3, shape).astype(DTYPES[storage])


@pytest.mark.parametrize("name", COMPARE)
@pytest.mark.parametrize("kinds", [("f32", "f32"), ("f16", "f32"), ("i32", "u8")])
def test_comparison_equals_numpy(rng, name, kinds):
    a, b = _whole(rng, (3, 1, 4, 5), kinds[0]), _whole(rng, (1, 1, 4, 1), kinds[1])
    integers = geometry.integers(("d", "sa", "sb"), SHAPE, *_steps(SHAPE, a, b))
    found = same_for_threads(
        f"cmp_{name}", dict(zip("AB", kinds, strict=True)), a=a, b=b, y=SHAPE, na=a.size,
        nb=b.size, **integers,
    )["y"]  # fmt: skip
    np.testing.assert_array_equal(found, np.broadcast_to(RELATIONS[name](a, b), SHAPE))


@pytest.mark.parametrize("want", [0, 1])
@pytest.mark.parametrize("storage", ["f32", "f16", "i32", "u8"])
def test_truth_equals_numpy(rng, storage, want):
    x = _whole(rng, 200, storage)
    found = same_for_threads("truth", {"S": storage}, x=x, y=x.shape, n=x.size, want=want)["y"]
    np.testing.assert_array_equal(found, (x != 0) == want)


def test_truth_of_nan_is_true():
    x = np.array([np.nan, 0, np.inf], np.float32)
    found = same_for_threads("truth", {"S": "f32"}, x=x, y=3, n=3, want=1)["y"]
    assert found.tolist() == [1, 0, 1]


@pytest.mark.parametrize("kinds", ["u8 f32 f32 f32", "f16 f16 f32 f16", "i32 i32 i32 i32"])
def test_where_equals_numpy(rng, kinds):
    m, ka, kb, ks = kinds.split()
    mask, a, b = (_whole(rng, s, k) for s, k in (((4, 1), m), (SHAPE, ka), ((5,), kb)))
    padded = [x.reshape((1,) * (4 - x.ndim) + x.shape) for x in (mask, a, b)]
    names = ("d", "sm", "sa", "sb")
    found = same_for_threads(
        "where", dict(zip("MABS", (m, ka, kb, ks), strict=True)), mask=mask, a=a, b=b, y=SHAPE,
        nm=mask.size, na=a.size, nb=b.size,
        **geometry.integers(names, SHAPE, *_steps(SHAPE, *padded)),
    )["y"]  # fmt: skip
    np.testing.assert_array_equal(found, np.where(mask != 0, a, b))


@pytest.mark.parametrize("want, acc", [(0, 0), (1, 0), (1, 1)])
@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_mask_keeps_what_is_wanted(rng, storage, want, acc):
    mask = _whole(rng, (1, 1, 4, 1), "u8")
    dy, dx = (_whole(rng, SHAPE, storage) for _ in range(2))
    found = same_for_threads(
        "mask_keep", {"M": "u8", "S": storage}, mask=mask, dy=dy, dx=dx, nm=mask.size, want=want,
        acc=acc, **geometry.integers(("d", "sm"), SHAPE, *_steps(SHAPE, mask)),
    )["dx"]  # fmt: skip
    np.testing.assert_array_equal(found, np.where((mask != 0) == want, dy, 0) + acc * dx)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_running_sum_equals_numpy(rng, storage, exclusive, reverse):
    x, y = (_whole(rng, (3, 6, 5), storage) for _ in range(2))
    found = same_for_threads(
        "cumsum", {"S": storage}, x=x, y=y, outer=3, n=6, inner=5, exclusive=exclusive,
        reverse=reverse, acc=1,
    )["y"]  # fmt: skip
    turned = x[:, ::-1] if reverse else x
    sums = np.cumsum(turned, 1) - exclusive * turned
    np.testing.assert_array_equal(found, (sums[:, ::-1] if reverse else sums) + y)


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("acc", [0, 1])
def test_product_gradient_is_exact_at_zeros(rng, zeros, acc):
    x = rng.uniform(0.5, 2, (4, 3, 5)).astype(np.float32)
    x[:, 1, :zeros] = 0
    dy, dx = rng.normal(size=(4, 5)).astype(np.float32), rng.normal(size=x.shape).astype(np.float32)
    integers = geometry.integers(("k", "ks"), (4, 5), (15, 1))
    integers |= geometry.integers(("r", "rs"), (3,), (5,))
    found = same_for_threads(
        "reduce_prod_bwd", {"S": "f32"}, x=x, y=x.prod(1), dy=dy, dx=dx, nx=x.size, acc=acc,
        **integers,
    )["dx"]  # fmt: skip
    others = np.stack([np.delete(x, i, 1).prod(1) for i in range(3)], 1)
    np.testing.assert_allclose(found, dy[:, None] * others + acc * dx, 1e-5, 1e-6)
