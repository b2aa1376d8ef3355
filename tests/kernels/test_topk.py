"""Top-k along an axis compared with numpy's stable sort, and picking by indices."""

import numpy as np
import pytest

from .harness import DTYPES, same_for_threads

SHAPES = [((1, 7, 1), 3), ((2, 5, 3), 5), ((3, 1, 4), 1), ((2, 33, 2), 4)]


def _ranks(x, count, reverse, first):
    """Rank with numpy's stable sort; among equal values the first (or the last) comes first."""
    turned = x if first else x[:, ::-1]
    keys = turned if reverse else -turned
    index = np.argsort(keys, axis=1, kind="stable")
    return (index if first else x.shape[1] - 1 - index)[:, :count]


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("flags", [(0, 1), (1, 1), (0, 0), (1, 0)])
@pytest.mark.parametrize(("shape", "count"), SHAPES)
def test_topk_equals_naive(rng, shape, count, flags, storage):
    x = rng.integers(-4, 5, shape).astype(DTYPES[storage])  # few distinct numbers: many ties
    sizes = dict(zip(("outer", "n", "inner"), shape, strict=True)) | {"k": count}
    found = same_for_threads(
        "topk", {"S": storage}, x=x, idx=(shape[0], count, shape[2]), **sizes,
        reverse=flags[0], first=flags[1],
    )["idx"]  # fmt: skip
    np.testing.assert_array_equal(found, _ranks(x.astype(np.float64), count, *flags))


def test_topk_takes_nan_for_infinity():
    x = np.float32([1, np.nan, np.inf, np.nan, -np.inf])
    sizes = {"outer": 1, "n": 5, "inner": 1, "k": 5, "first": 1}
    for reverse, expected in ((0, [1, 2, 3, 0, 4]), (1, [4, 0, 1, 2, 3])):
        found = same_for_threads("topk", {"S": "f32"}, x=x, idx=5, reverse=reverse, **sizes)["idx"]
        assert found.tolist() == expected


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize(("shape", "count"), SHAPES)
def test_pick_and_its_gradient_equal_naive(rng, shape, count, storage):
    outer, n, inner = shape
    x, dx = (rng.normal(size=shape).astype(DTYPES[storage]) for _ in range(2))
    dy = rng.normal(size=(outer, count, inner)).astype(DTYPES[storage])
    index = rng.integers(0, n, dy.shape).astype(np.int32)
    index.ravel()[0] = n  # out of range
    sizes = {"outer": outer, "n": n, "inner": inner, "k": count}
    found = same_for_threads("pick", {"S": storage}, x=x, idx=index, y=dy.shape, **sizes)["y"]
    inside = index < n
    expected = np.take_along_axis(x, np.where(inside, index, 0), 1) * inside
    np.testing.assert_array_equal(found, expected)
    total = dx.astype(np.float32)
    for o, j, i in np.ndindex(dy.shape):
        if inside[o, j, i]:
            at = o, index[o, j, i], i
            total[at] = DTYPES[storage](total[at] + np.float32(dy[o, j, i]))
    found = same_for_threads("pick_bwd", {"S": storage}, idx=index, dy=dy, dx=dx, **sizes)["dx"]
    np.testing.assert_array_equal(found, total.astype(DTYPES[storage]))
