"""Pooling compared with numpy and torch's rules: overlap, padding, ties, NaN, divisors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from . import naive_pool
from .harness import DTYPES, call, same_for_threads

TOLERANCE = {"f32": 1e-6, "f16": 1e-3}
CASES = [
    {"n": 2, "c": 3, "h": 8, "wd": 8, "kh": 2, "kw": 2, "sh": 2, "sw": 2},
    {"n": 1, "c": 2, "h": 9, "wd": 7, "kh": 3, "kw": 3, "sh": 2, "sw": 2, "ph": 1, "pw": 1},
    {"n": 2, "c": 1, "h": 6, "wd": 5, "kh": 3, "kw": 2, "sh": 1, "sw": 3, "ph": 1, "pb": 0},
    {"n": 1, "c": 5, "h": 7, "wd": 7, "kh": 7, "kw": 7},
    {"n": 2, "c": 3, "h": 6, "wd": 72, "kh": 3, "kw": 2, "sh": 3, "sw": 2},
    {"n": 3, "c": 5, "h": 4, "wd": 38, "kh": 2, "kw": 2, "sh": 2, "sw": 2},
    {"n": 1, "c": 2, "h": 1, "wd": 21, "kh": 1, "kw": 4, "sw": 3, "pr": 2},
]


def _sizes(case, dilation=(1, 1)):
    """Return the integers of a pooling; bottom and right padding default to top and left."""
    s = {"sh": 1, "sw": 1, "ph": 0, "pw": 0} | case
    pb, pr = s.pop("pb", s["ph"]), s.pop("pr", s["pw"])
    s["oh"] = (s["h"] + s["ph"] + pb - (s["kh"] - 1) * dilation[0] - 1) // s["sh"] + 1
    s["ow"] = (s["wd"] + s["pw"] + pr - (s["kw"] - 1) * dilation[1] - 1) // s["sw"] + 1
    return s, {"pb": pb, "pr": pr}


def _arrays(s, storage, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((s["n"], s["c"], s["h"], s["wd"])).astype(DTYPES[storage])
    dy = rng.standard_normal((s["n"], s["c"], s["oh"], s["ow"])).astype(DTYPES[storage])
    return np.round(x, 1), dy


def check_max(case, storage, index="u8", dilation=(1, 1), acc=1):
    s, _ = _sizes(case, dilation)
    s |= {"dh": dilation[0], "dw": dilation[1]}
    x, dy = _arrays(s, storage)
    storages = {"S": storage, "I": index}
    out = same_for_threads("maxpool", storages, x=x, y=dy.shape, idx=dy.shape, **s)
    y, idx = naive_pool.maximum(x, **s)
    np.testing.assert_array_equal(out["y"], y)
    np.testing.assert_array_equal(out["idx"], idx)
    back = same_for_threads(
        "maxpool_bwd", storages, idx=out["idx"], dy=dy, dx=x.copy(), acc=acc, **s
    )
    expected = naive_pool.maximum_backward(idx, dy, **s) + acc * x.astype(np.float64)
    scale = max(np.abs(expected).max(), 1)
    np.testing.assert_allclose(back["dx"], expected, rtol=0, atol=TOLERANCE[storage] * scale)


def check_average(case, storage, include_pad, acc=1):
    s, after = _sizes(case)
    x, dy = _arrays(s, storage)
    extra = after | {"include_pad": include_pad}
    out = same_for_threads("avgpool", {"S": storage}, x=x, y=dy.shape, **s, **extra)
    expected = naive_pool.average(x.astype(np.float64), **s, **extra)
    np.testing.assert_allclose(out["y"], expected, rtol=0, atol=2 * TOLERANCE[storage])
    back = same_for_threads(
        "avgpool_bwd", {"S": storage}, dy=dy, dx=x.copy(), acc=acc, **s, **extra
    )
    expected = naive_pool.average_backward(dy.astype(np.float64), **s, **extra)
    expected += acc * x.astype(np.float64)
    np.testing.assert_allclose(back["dx"], expected, rtol=0, atol=4 * TOLERANCE[storage])


@pytest.mark.parametrize("dilation", [(1, 1), (1, 2)])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("case", CASES[:3] + CASES[4:])
def test_maxpool_equals_naive(case, storage, dilation):
    check_max(case, storage, dilation=dilation)


@pytest.mark.parametrize("include_pad", [0, 1])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("case", CASES)
def test_avgpool_equals_naive(case, storage, include_pad):
    check_average(case, storage, include_pad)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 5.0])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("dilation", [(1, 1), (1, 2)])
def test_lppool_equals_naive_with_windows_of_zeros(p, storage, dilation):
    for case in CASES[:3]:
        s, _ = _sizes(case, dilation)
        s |= {"dh": dilation[0], "dw": dilation[1]}
        x, dy = _arrays(s, storage)
        x[:, :, :4] = 0
        y = naive_pool.norm(x.astype(np.float64), p, **s)
        found = same_for_threads("lppool", {"S": storage}, x=x, y=dy.shape, p=p, **s)["y"]
        np.testing.assert_allclose(found, y, 2 * TOLERANCE[storage], TOLERANCE[storage])
        back = same_for_threads(
            "lppool_bwd", {"S": storage}, x=x, y=y.astype(x.dtype), dy=dy, dx=x.copy(), p=p,
            acc=1, **s,
        )["dx"]  # fmt: skip
        expected = naive_pool.norm_backward(x.astype(np.float64), y, dy.astype(np.float64), p, **s)
        np.testing.assert_allclose(back, expected + x, 0, 8 * TOLERANCE[storage])


@st.composite
def pools(draw) -> dict[str, int]:
    kh, kw = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return {
        "n": draw(st.integers(1, 2)),
        "c": draw(st.integers(1, 3)),
        "h": kh + draw(st.integers(0, 6)),
        "wd": kw + draw(st.integers(0, 20)),
        "kh": kh,
        "kw": kw,
        "sh": draw(st.integers(1, 4)),
        "sw": draw(st.integers(1, 4)),
        "ph": draw(st.integers(0, kh // 2)),
        "pw": draw(st.integers(0, kw // 2)),
        "pb": draw(st.integers(0, kh // 2)),
        "pr": draw(st.integers(0, kw // 2)),
    }


@given(pools(), st.integers(0, 1))
def test_pools_equal_naive_for_any_shape(case, flag):
    check_max(case, "f32", "u16", acc=flag)
    check_average(case, "f32", flag, acc=1 - flag)


def test_maxpool_propagates_nan():
    s, _ = _sizes(CASES[0])
    x, dy = _arrays(s, "f32")
    x[0, 0, 1, 0] = np.nan
    operands = {"x": x, "y": dy.shape, "idx": dy.shape, "dh": 1, "dw": 1, **s}
    out = call("maxpool", {"S": "f32", "I": "u8"}, **operands)
    assert np.isnan(out["y"][0, 0, 0, 0]) and np.isnan(out["y"]).sum() == 1
    assert out["idx"][0, 0, 0, 0] == 2


WIDE = [
    {"n": 2, "c": 3, "h": 5, "wd": 40, "kh": 3, "kw": 3, "sh": 2, "sw": 2, "ph": 1, "pw": 1},
    {"n": 1, "c": 2, "h": 6, "wd": 53, "kh": 3, "kw": 3, "ph": 1, "pw": 1},
    {"n": 2, "c": 2, "h": 7, "wd": 37, "kh": 2, "kw": 5, "sh": 3, "sw": 2, "ph": 1, "pw": 2},
    {"n": 3, "c": 4, "h": 3, "wd": 3, "kh": 3, "kw": 3, "sw": 2, "ph": 1, "pw": 1},
    {"n": 1, "c": 1, "h": 2, "wd": 16, "kh": 1, "kw": 9, "sw": 2, "pw": 4},
]


@pytest.mark.parametrize("dilation", [(1, 1), (2, 1), (1, 3)])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("case", WIDE)
def test_maxpool_of_vectors_has_the_plain_bits(case, storage, dilation):
    """With ties, infinities and NaN; gradient sums too."""
    if (case["kw"] - 1) * dilation[1] >= case["wd"] or (case["kh"] - 1) * dilation[0] >= case["h"]:
        dilation = (1, 1)
    s, _ = _sizes(case, dilation)
    s |= {"dh": dilation[0], "dw": dilation[1]}
    x, dy = _arrays(s, storage)
    rng = np.random.default_rng(8)
    for value in (np.nan, np.inf, -np.inf, 0.0, -0.0):
        x[rng.random(x.shape) < 0.1] = value
    dy[rng.random(dy.shape) < 0.1] = -0.0
    dy[rng.random(dy.shape) < 0.02] = np.nan
    storages, given = {"S": storage, "I": "u8"}, {"x": x, "y": dy.shape, "idx": dy.shape}
    plain = call("maxpool", storages, variant="plain", **given, **s)
    fast = same_for_threads("maxpool", storages, variant="fast", **given, **s)
    assert fast["idx"].tobytes() == plain["idx"].tobytes()
    np.testing.assert_array_equal(fast["y"], plain["y"])
    for acc in (0, 1):
        given = {"idx": plain["idx"], "dy": dy, "dx": np.zeros_like(x), "acc": acc}
        want = call("maxpool_bwd", storages, variant="plain", **given, **s)
        found = same_for_threads("maxpool_bwd", storages, variant="fast", **given, **s)
        np.testing.assert_array_equal(found["dx"], want["dx"])
        assert (np.signbit(found["dx"]) == np.signbit(want["dx"]))[~np.isnan(want["dx"])].all()
