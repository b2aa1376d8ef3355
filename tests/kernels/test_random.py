"""Random ops: equal to their numpy twin, correctly distributed, and the same when split up."""

import numpy as np
import pytest

from . import naive_rng
from .harness import DTYPES, control, same_for_threads

WORDS = {"SEED": 99, "STEP": 4, "MICROBATCH": 2}


def _fractions(key, places):
    return (naive_rng.hash32(naive_rng.stream(99, key, 4, 2), places) >> 8) / 2.0**24


def _normals(key, n):
    radius = np.sqrt(-2 * np.log(1 - _fractions(key, 2 * np.arange(n))))
    return radius * np.cos(2 * np.pi * _fractions(key, 2 * np.arange(n) + 1))


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("n", [1, 64, 1001])
def test_uniform_numbers_equal_naive(n, storage):
    call = {"ctl": control(**WORDS), "key": 7, "n": n, "low": -0.5, "span": 3.0}
    y = same_for_threads("random_uniform", {"S": storage}, y=(n,), **call)["y"]
    # -0.5 + 3 u is exact before the single rounding: u has 24 bits.
    expected = (-0.5 + 3.0 * _fractions(7, np.arange(n))).astype(np.float32)
    np.testing.assert_array_equal(y, expected.astype(DTYPES[storage]))


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("n", [1, 64, 1001])
def test_normal_numbers_equal_naive(n, storage):
    call = {"ctl": control(**WORDS), "key": 7, "n": n, "mean": 0.25, "scale": 1.5}
    y = same_for_threads("random_normal", {"S": storage}, y=(n,), **call)["y"]
    # The angle is rounded to float32 (2e-7 of up to 2 pi), times a radius of at most 5.8.
    tolerance = 1e-5 if storage == "f32" else 4e-3
    np.testing.assert_allclose(y, 0.25 + 1.5 * _normals(7, n), rtol=tolerance, atol=tolerance)


def test_normal_numbers_have_mean_variance_and_tails():
    n = 200_000
    call = {"ctl": control(**WORDS), "key": 1, "n": n, "mean": 0.0, "scale": 1.0}
    y = same_for_threads("random_normal", {"S": "f32"}, y=(n,), **call)["y"].astype(np.float64)
    # Five standard deviations of each estimate over n draws.
    bound = 5 / np.sqrt(n)
    assert abs(y.mean()) < bound
    assert abs(y.var() - 1) < np.sqrt(2) * bound
    assert abs((np.abs(y) > 1.959964).mean() - 0.05) < np.sqrt(0.05 * 0.95) * bound
    assert abs((y[1:] * y[:-1]).mean()) < bound  # correlation of neighbours


def test_normal_numbers_are_finite_at_every_extreme_of_their_fractions():
    """log(1 - u) is finite because u is at most 1 - 2^-24."""
    call = {"ctl": control(**WORDS), "key": 3, "n": 1 << 16, "mean": 0.0, "scale": 1.0}
    y = same_for_threads("random_normal", {"S": "f32"}, y=(1 << 16,), **call)["y"]
    assert np.isfinite(y).all() and np.abs(y).max() <= np.sqrt(48 * np.log(2))
