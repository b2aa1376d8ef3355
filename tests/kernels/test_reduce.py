"""Reductions of strided tensors compared with numpy in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.kernels.reductions.norms import PULLED, REDUCED
from edgetrain.kernels.reductions.reduce import REDUCTIONS

from . import geometry, naive_reduce
from .harness import DTYPES, same_for_threads


def _integers(shape, kept):
    steps = geometry.dense(shape)
    out = {"nx": int(np.prod(shape))}
    for kind, keep in (("k", True), ("r", False)):
        axes = [axis for axis, k in enumerate(kept) if k == keep]
        dims, part = [shape[axis] for axis in axes], [steps[axis] for axis in axes]
        out |= geometry.integers((kind, f"{kind}s"), dims, part)
    return out


def _axes(kept):
    return tuple(axis for axis, keep in enumerate(kept) if not keep)


@pytest.mark.parametrize(
    "name, storage", [("sum", "f16"), ("max", "f16"), *((name, "f32") for name in REDUCTIONS)]
)
@settings(max_examples=12)
@given(case=geometry.masked_shapes())
def test_reduction_equals_naive_over_any_dims(name, storage, case):
    shape, kept = case
    rng = np.random.default_rng(sum(shape))
    x = rng.normal(size=shape)
    x = (np.exp(x * 0.05) if name == "prod" else x).astype(DTYPES[storage])
    axes = _axes(kept)
    terms = int(np.prod([shape[axis] for axis in axes]))
    scale = 1 / terms if name == "mean" else 0.5
    expected = naive_reduce.REDUCE[name](x.astype(np.float64), axis=axes) * scale
    size = np.abs(x.astype(np.float64)).max() * terms if name in ("sum", "mean") else 0
    found = same_for_threads(
        f"reduce_{name}", {"S": storage}, x=x, y=expected.shape, scale=scale,
        **_integers(shape, kept),
    )["y"]  # fmt: skip
    rtol = {"f32": 3e-7, "f16": 1e-3}[storage]
    np.testing.assert_allclose(
        found.astype(np.float64), expected, rtol=rtol, atol=1e-7 + size * 1e-9
    )


@pytest.mark.parametrize("name, storage", [("max", "f32"), ("min", "f16")])
@settings(max_examples=12)
@given(case=geometry.masked_shapes(), acc=st.integers(0, 1))
def test_gradient_of_extremes_is_shared_among_ties(name, storage, case, acc):
    shape, kept = case
    rng = np.random.default_rng(sum(shape))
    dtype, axes = DTYPES[storage], _axes(kept)
    x = rng.integers(-4, 5, shape).astype(dtype)
    y = (np.max if name == "max" else np.min)(x, axis=axes, keepdims=True)
    dy, dx = rng.normal(size=y.shape).astype(dtype), rng.normal(size=shape).astype(dtype)
    found = same_for_threads(
        f"reduce_{name}_bwd", {"S": storage}, x=x, y=y, dy=dy, dx=dx, acc=acc,
        **_integers(shape, kept),
    )["dx"]  # fmt: skip
    expected = naive_reduce.extreme_bwd(x, y, dy.astype(np.float64), axes) + acc * dx
    rtol = {"f32": 1e-6, "f16": 1e-3}[storage]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    "name, storage, p",
    [("norm", "f16", 3.0), ("norm", "f32", 1.5), *((name, "f32", 2.0) for name in PULLED)],
)
@settings(max_examples=10)
@given(case=geometry.masked_shapes(), acc=st.integers(0, 1))
def test_reduction_of_a_function_and_its_gradient_equal_naive(name, storage, p, case, acc):
    shape, kept = case
    rng = np.random.default_rng(sum(shape))
    dtype, axes = DTYPES[storage], _axes(kept)
    x = rng.normal(size=shape) * (rng.random(shape) > 0.2)
    x = (np.abs(x) + 0.1 if name == "logsum" else x).astype(dtype)
    value, slope = naive_reduce.FUNCTIONS[name]
    y = value(x.astype(np.float64), axes, p)
    tolerance = {"f32": 3e-6, "f16": 2e-3}[storage]
    if name in REDUCED:
        found = same_for_threads(
            f"reduce_{name}", {"S": storage}, x=x, y=y.shape, p=p, **_integers(shape, kept)
        )["y"]
        np.testing.assert_allclose(found.astype(np.float64), y, tolerance, tolerance)
    dy, dx = rng.normal(size=y.shape).astype(dtype), rng.normal(size=shape).astype(dtype)
    found = same_for_threads(
        f"reduce_{name}_bwd", {"S": storage}, x=x, y=y.astype(dtype), dy=dy, dx=dx, p=p, acc=acc,
        **_integers(shape, kept),
    )["dx"]  # fmt: skip
    expected = dy.astype(np.float64) * slope(x.astype(np.float64), y, p) + acc * dx
    np.testing.assert_allclose(found.astype(np.float64), expected, tolerance, 2 * tolerance)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0, 5.0])
@pytest.mark.parametrize("size", [1e-20, 6e-8, 3e4, 1e30])
def test_norm_of_any_size_keeps_its_digits(p, size):
    x = np.full((3, 40), size, np.float32)
    found = same_for_threads(
        "reduce_norm", {"S": "f32"}, x=x, y=(3,), p=p, **_integers(x.shape, (True, False))
    )["y"]
    np.testing.assert_allclose(found, [size * 40 ** (1 / p)] * 3, 1e-6)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("kept", [(True, False), (False, True)])
def test_reduction_lets_nan_through(name, kept):
    x = np.ones((40, 40), np.float32)
    x[3, 3] = np.nan
    found = same_for_threads(
        f"reduce_{name}", {"S": "f32"}, x=x, y=(40,), scale=1.0, **_integers(x.shape, kept)
    )["y"]
    assert np.flatnonzero(np.isnan(found)).tolist() == [3]


def test_sum_of_a_million_keeps_its_digits():
    x = np.full(1_000_000, 0.1, np.float32)
    integers = _integers(x.shape, (False,))
    found = same_for_threads("reduce_sum", {"S": "f32"}, x=x, y=(1,), scale=1.0, **integers)["y"]
    np.testing.assert_allclose(found, [x.astype(np.float64).sum()], rtol=1e-7)
