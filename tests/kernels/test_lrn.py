"""Local response normalisation against numpy, its gradient against float64 differences."""

import numpy as np
import pytest

from .harness import DTYPES, same_for_threads

SHAPES = [(2, 7, 5, 3), (1, 1, 40, 5), (2, 3, 300, 4), (1, 6, 17, 20)]
FACTORS = {"alpha": 0.4, "beta": 0.75, "bias": 1.5}


def _naive(x, size, alpha, beta, bias):
    """Normalise x [n, c, s] in float64."""
    y = np.empty_like(x)
    for i in range(x.shape[1]):
        window = x[:, max(0, i - (size - 1) // 2) : i + size // 2 + 1]
        y[:, i] = x[:, i] / (bias + alpha / size * (window**2).sum(1)) ** beta
    return y


@pytest.mark.parametrize("storage, tolerance", [("f32", 1e-5), ("f16", 2e-3)])
@pytest.mark.parametrize("n, c, s, size", SHAPES)
def test_lrn_equals_naive(rng, n, c, s, size, storage, tolerance):
    x = rng.normal(size=(n, c, s)).astype(DTYPES[storage])
    found = same_for_threads(
        "lrn", {"S": storage}, x=x, y=x.shape, n=n, c=c, s=s, size=size, **FACTORS
    )["y"]
    expected = _naive(x.astype(np.float64), size, **FACTORS)
    np.testing.assert_allclose(found.astype(np.float64), expected, tolerance, tolerance)


@pytest.mark.parametrize("storage, tolerance", [("f32", 2e-5), ("f16", 4e-3)])
@pytest.mark.parametrize("acc", [0, 1])
@pytest.mark.parametrize("n, c, s, size", SHAPES)
def test_lrn_gradient_equals_differences(rng, n, c, s, size, acc, storage, tolerance):
    kind = DTYPES[storage]
    x, dy, dx = (rng.normal(size=(n, c, s)).astype(kind) for _ in range(3))
    found = same_for_threads(
        "lrn_bwd", {"S": storage}, x=x, dy=dy, dx=dx, n=n, c=c, s=s, size=size, acc=acc, **FACTORS
    )["dx"]
    wide, step = x.astype(np.float64), 1e-6
    expected = acc * dx.astype(np.float64)
    for i in range(c):  # pixels are independent: move all pixels of a channel at once
        moved = np.zeros_like(wide)
        moved[:, i] = step
        slope = _naive(wide + moved, size, **FACTORS) - _naive(wide - moved, size, **FACTORS)
        expected[:, i] += (dy.astype(np.float64) * slope).sum(1) / (2 * step)
    np.testing.assert_allclose(found.astype(np.float64), expected, tolerance, tolerance)
