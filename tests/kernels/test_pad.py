"""Padding modes compared with numpy.pad, gradients with sums over the same index map."""

import numpy as np
import pytest

from .harness import DTYPES, same_for_threads

MODES = ("reflect", "edge", "wrap")
# dims of x, (before, after) for each axis
CASES = [
    ((5,), ((2, 3),)),
    ((2, 3, 4, 5), ((0, 0), (0, 0), (1, 2), (4, 0))),
    ((3, 1, 2, 3, 2, 4), ((1, 1), (0, 0), (1, 0), (2, 2), (1, 1), (3, 3))),
    ((4, 6), ((-1, 2), (3, -2))),
]


def _padded(x, pads, mode):
    before = [(max(a, 0), max(b, 0)) for a, b in pads]
    y = np.pad(x, before, mode=mode)
    crop = tuple(slice(-min(a, 0), n + min(b, 0)) for (a, b), n in zip(pads, y.shape, strict=True))
    return np.ascontiguousarray(y[crop])


def _integers(x_shape, y_shape, pads):
    lead = 6 - len(x_shape)
    rows = {
        "d": (1,) * lead + tuple(y_shape),
        "e": (1,) * lead + tuple(x_shape),
        "p": (0,) * lead + tuple(a for a, _ in pads),
    }
    return {f"{name}{k}": row[k] for name, row in rows.items() for k in range(6)}


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape, pads", CASES)
def test_pad_and_gradient_equal_numpy(rng, shape, pads, mode, storage):
    x, dx = (rng.normal(size=shape).astype(DTYPES[storage]) for _ in range(2))
    index = _padded(np.arange(x.size).reshape(shape), pads, mode)
    integers = _integers(shape, index.shape, pads) | {"mode": MODES.index(mode)}
    y = same_for_threads("pad_mode", {"S": storage}, x=x, y=index.shape, **integers)["y"]
    np.testing.assert_array_equal(y, x.ravel()[index])
    dy = rng.normal(size=index.shape).astype(x.dtype)
    sums = np.zeros(x.size)
    np.add.at(sums, index, dy.astype(np.float64))
    for acc in (0, 1):
        found = same_for_threads("pad_mode_bwd", {"S": storage}, dy=dy, dx=dx, acc=acc, **integers)[
            "dx"
        ]
        expected = sums.reshape(shape) + acc * dx
        limit = {"f32": 1e-5, "f16": 1e-2}[storage]
        np.testing.assert_allclose(found, expected, rtol=limit, atol=limit * 5)
