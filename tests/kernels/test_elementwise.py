"""Elementwise kernels compared with float64 twins."""

import numpy as np
import pytest

from edgetrain.kernels.elementwise.formulas import ROWS
from edgetrain.kernels.elementwise.intrinsics import NUMBERS_ONLY, bound, words_of

from . import naive_elementwise as naive
from .harness import DTYPES, same_for_threads

SLOPED = [row.name for row in ROWS.values() if row.vjp is not None]
PARAMETERS = {
    "clip": (-0.7, 1.1), "clamp": (-0.7, 1.1), "hardsigmoid": (0.2, 0.5), "elu": (1.3, 0.0),
    "fake_quantize": (2**-6, 100.0),  # a power of two, so the quotient is the same in all types
}  # fmt: skip
# A few float32 rounding errors, or one rounding of the stored fp16.
RTOL = {"f32": 2e-6, "f16": 1e-3}
SIZES = (1, 63, 64, 1003)


# Ranges in which values and slopes fit fp16.
TAME = {"exp": (-9.0, 5.0), "sinh": (-5.0, 5.0), "cosh": (-5.0, 5.0), "tan": (-1.2, 1.2)}


def _input(rng, name, n, dtype):
    least, most = TAME.get(name, ROWS[name].domain)
    if np.isfinite(most):
        return (rng.uniform(least, most, n) * 0.98).astype(dtype)
    x = rng.normal(size=n) * 3
    return (least + 0.1 + np.abs(x) if np.isfinite(least) else x).astype(dtype)


def _close(found, expected, storage):
    np.testing.assert_allclose(
        found.astype(np.float64), expected, rtol=RTOL[storage], atol=RTOL[storage]
    )


READ = [name for name in SLOPED if ROWS[name].saved]


def _slopes(name, x, a, b):
    """Return the slope at x in float64, computed by the row's vjp."""
    row = ROWS[name]
    with np.errstate(all="ignore"):
        s = naive.value(name)(x, a, b) if row.saved == "y" else x
        vjp = bound(row.vjp, naive.INTRINSICS)
        return vjp(s, np.ones_like(x), *map(np.float64, (a, b)))


@pytest.mark.parametrize("name", READ)
def test_a_row_says_whether_its_slope_is_bounded(name):
    """Sampled near the ends of the function's domain and far out."""
    least, most = (float(end) for end in ROWS[name].domain)
    ends = [end + s * 10.0**-k for end, s in ((least, 1), (most, -1)) for k in range(3, 13)]
    far = [s * 10.0**k for s in (-1, 1) for k in range(-6, 7)] + [np.pi / 2, 60.0, -60.0]
    x = np.array([v for v in (*ends, *far) if np.isfinite(v) and least < v < most])
    slopes = np.abs(_slopes(name, x, *PARAMETERS.get(name, (0.1, 0.0))))
    assert ROWS[name].bounded == bool((slopes < 10).all())


@pytest.mark.parametrize("sign", [1, -1], ids=["usual", "other signs"])
@pytest.mark.parametrize("name", [name for name in READ if ROWS[name].bounded])
def test_a_row_says_where_its_slope_jumps(name, sign):
    a, b = PARAMETERS.get(name, (0.1, 0.0))
    if sign < 0 and not ROWS[name].onnx:
        pytest.skip("only the compiler chooses its parameters")
    a, b = sign * a, sign * b
    x = np.arange(-8192, 8192) / 1024 + 1 / 2053  # avoids every kink
    slopes = _slopes(name, x, a, b)
    if sign < 0 and np.abs(slopes).max() > 10:
        pytest.skip("unbounded with these signs")
    jumps = x[1:][np.abs(np.diff(slopes)) > 0.02]
    kinks = sorted(kink for kink in ROWS[name].kinks(a, b) if abs(kink) < 8)
    np.testing.assert_allclose(jumps, kinks, atol=1 / 1024)


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("name", ROWS)
def test_unary_equals_naive(rng, name, storage):
    a, b = PARAMETERS.get(name, (0.1, 0.0))
    for n in SIZES:
        x = _input(rng, name, n, DTYPES[storage])
        found = same_for_threads(f"un_{name}", {"S": storage}, x=x, y=x.shape, a=a, b=b, n=n)
        _close(found["y"], naive.value(name)(x.astype(np.float64), a, b), storage)


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("name", SLOPED)
def test_unary_gradient_equals_naive(rng, name, storage):
    a, b = PARAMETERS.get(name, (0.1, 0.0))
    for n, acc in zip(SIZES, (0, 1, 0, 1), strict=True):
        x = _input(rng, name, n, DTYPES[storage])
        y = naive.value(name)(x.astype(np.float64), a, b).astype(x.dtype)
        dy, dx = (rng.normal(size=n).astype(x.dtype) for _ in range(2))
        s = y if ROWS[name].saved == "y" else x
        found = same_for_threads(
            f"un_{name}_bwd", {"S": storage}, s=s, dy=dy, dx=dx, a=a, b=b, n=n, acc=acc
        )
        stored = [float(v) if ROWS[name].saved != "y" else float(x.dtype.type(v)) for v in (a, b)]
        x, y = x.astype(np.float64), y.astype(np.float64)
        _close(found["dx"], naive.slope(name)(x, y, *stored) * dy + acc * dx, storage)


@pytest.mark.parametrize("name", ROWS)
def test_unary_lets_nan_through_and_may_overwrite_its_input(name):
    inside = [0.5, 0.25] if ROWS[name].domain[1] == 1 else [1.0, 2.0]
    x = np.array([np.nan, *inside] * 100, np.float32)
    a, b = PARAMETERS.get(name, (0.1, 0.0))
    apart = same_for_threads(f"un_{name}", {"S": "f32"}, x=x, y=x.shape, a=a, b=b, n=300)["y"]
    inside = same_for_threads(
        f"un_{name}", {"S": "f32"}, threads=(1, 64), x=x, y="x", a=a, b=b, n=300
    )
    np.testing.assert_array_equal(np.isnan(apart), np.isnan(x))
    assert all(array.tobytes() == apart.tobytes() for array in inside.values())


@pytest.mark.parametrize("name", SLOPED)
def test_unary_gradient_is_finite_at_the_ends_and_not_where_dy_is_not(name):
    a, b = PARAMETERS.get(name, (0.1, 0.0))
    x = np.array([-np.inf, -1e30, -100, 100, 1e30, np.inf])
    least, most = ROWS[name].domain
    row = ROWS[name]
    turns = NUMBERS_ONLY & (words_of(row.value) | words_of(row.vjp))  # of no meaning far out
    if name in TAME or turns or np.isfinite(most):
        x = np.array([-0.9, 0.0, 0.9])
    elif np.isfinite(least):
        x = np.abs(x)
    with np.errstate(all="ignore"):
        y = naive.value(name)(x, a, b)
    s = (y if ROWS[name].saved == "y" else x).astype(np.float32)
    dx = np.zeros_like(s)
    call = {"s": s, "dx": dx, "a": a, "b": b, "n": s.size, "acc": 0}
    found = same_for_threads(f"un_{name}_bwd", {"S": "f32"}, dy=np.ones_like(s), **call)["dx"]
    assert np.isfinite(found).all(), (s, found)
    if name not in (
        "relu",
        "clip",
        "clamp",
        "hardswish",
        "hardsigmoid",
        "thresholded_relu",
        "fake_quantize",
    ):
        bad = np.full_like(s, np.nan)
        found = same_for_threads(f"un_{name}_bwd", {"S": "f32"}, dy=bad, **call)["dx"]
        assert np.isnan(found).all()


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("n", [1, 8, 61, 64, 65, 1000, 4096])
def test_relu_mask_and_its_gradient_equal_naive(rng, storage, n):
    x, dy, dx = (rng.normal(size=n).astype(DTYPES[storage]) for _ in range(3))
    x[rng.random(n) < 0.2] = 0
    x[rng.random(n) < 0.1] = np.nan
    shapes = {"y": x.shape, "mask": ((n + 7) // 8,)}
    found = same_for_threads("relu_mask", {"S": storage}, x=x, n=n, **shapes)
    y, mask = naive.relu_mask(x)
    np.testing.assert_array_equal(found["y"], y)
    np.testing.assert_array_equal(found["mask"], mask)
    for acc in (0, 1):
        back = same_for_threads(
            "relu_mask_bwd", {"S": storage}, mask=mask, dy=dy, dx=dx, n=n, acc=acc
        )
        expected = naive.relu_mask_bwd(mask, dy).astype(np.float32)
        expected += acc * dx.astype(np.float32)
        np.testing.assert_array_equal(back["dx"], expected.astype(dx.dtype))
