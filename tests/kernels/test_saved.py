"""Packing of saved values compared with its naive twin: rounding, and sides of kinks."""

import numpy as np
import pytest

from edgetrain.formats import FORMATS, INT8, decoded

from . import naive_rng
from .harness import call, control, same_for_threads
from .naive_packed import packed

SEED, KEY = 5, 77
CTL = {"SEED": SEED, "STEP": 3, "MICROBATCH": 1}
NUMBERS = naive_rng.stream(SEED, KEY, 3, 1)
SHAPES = [(1, 1, 64), (2, 3, 50), (3, 5, 7)]


@pytest.mark.parametrize("n", [64, 100, 1000])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("kept", ["q8", "q8n"])
def test_pack_equals_naive_twin_and_says_the_same_again(rng, n, storage, kept):
    x = rng.standard_normal(n).astype(FORMATS[storage].dtype)
    y = INT8.encode(np.ones(n, np.float32)).view(FORMATS[kept].dtype)
    args = {"x": x, "y": y, "ctl": control(**CTL), "n": n, "key": KEY}
    out = [same_for_threads("pack", {"S": storage, "W": kept}, **args)["y"] for _ in range(2)]
    expected = packed(x.astype(np.float32), NUMBERS if kept == "q8" else None)
    assert out[0].tobytes() == out[1].tobytes() == expected.tobytes()


def _side(z, kinks):
    """Return which piece of an activation z is in; the first kink belongs to the piece below it."""
    return sum([(z > kinks[0]).astype(int), *((z >= high) for high in kinks[1:])])


def _naive_sides(x, z_of, kinks):
    """Round x to blocks; move numbers that crossed a kink of z_of(x) to their other neighbour."""
    flat = x.reshape(-1)
    stored = packed(flat, NUMBERS)
    rounded = decoded(stored, x.shape)
    rows = stored.view(np.uint8).reshape(-1, 65).copy()
    crossed = (_side(z_of(x), kinks) != _side(z_of(rounded), kinks)).reshape(-1)
    for i in np.flatnonzero(crossed):
        up = flat[i] > rounded.reshape(-1)[i]
        rows[i // 64, i % 64] = (int(rows[i // 64, i % 64]) + (1 if up else 255)) & 255
    return rows.reshape(-1).view("V65")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("act", "lo", "hi"), [(1, 0, 0), (2, -0.5, 1.5), (3, 0, 0), (6, 0.1, 0)])
@pytest.mark.parametrize("norm", [True, False])
def test_pack_sides_equals_naive_twin_and_crosses_no_kink(rng, shape, act, lo, hi, norm):
    n, c, s = shape
    x = (rng.standard_normal(shape) * 2).astype(np.float32)
    stat = rng.uniform(0.5, 2, 3 * c).astype(np.float32) if norm else None
    gamma, beta = (rng.standard_normal(c).astype(np.float32) if norm else None for _ in "ab")
    ones = INT8.encode(np.ones(x.size, np.float32))
    args = {"x": x, "y": ones, "stat": stat, "gamma": gamma, "beta": beta, "ctl": control(**CTL)}
    args |= {"n": n, "c": c, "s": s, "act": act, "lo": lo, "hi": hi, "key": KEY}
    out = same_for_threads("pack_sides", {"S": "f32", "W": "q8"}, **args)["y"]

    def z_of(values):
        if not norm:
            return values.astype(np.float64)
        scale = (stat[c : 2 * c] * gamma)[:, None].astype(np.float64)
        shift = np.float32(beta - stat[:c].astype(np.float64) * scale[:, 0])[:, None]
        return values * scale + shift

    kinks = {1: (0,), 2: (lo, hi), 3: (-3, 3), 6: (0,)}[act]
    assert out.tobytes() == _naive_sides(x, z_of, kinks).tobytes()
    sides = [_side(z_of(values), kinks) for values in (x, decoded(out, shape))]
    np.testing.assert_array_equal(*sides)
    step = np.abs(x).max() / 32
    assert np.abs(decoded(out, shape) - x).max() <= step


def test_a_number_that_is_not_finite_stays_so():
    x = np.ones((1, 1, 64), np.float32)
    x[0, 0, 3] = np.nan
    args = {"x": x, "y": INT8.encode(x * 0), "stat": None, "gamma": None, "beta": None}
    args |= {"n": 1, "c": 1, "s": 64, "act": 1, "lo": 0.0, "hi": 0.0, "key": KEY}
    out = call("pack_sides", {"S": "f32", "W": "q8"}, ctl=control(**CTL), **args)["y"]
    assert not np.isfinite(decoded(out, (64,))).any()


@pytest.mark.parametrize(
    ("act", "lo", "hi", "kinks"), [(1, 0, 0, [0]), (2, -0.5, 1.5, [-0.5, 1.5]), (3, 0, 0, [-3, 3])]
)
def test_numbers_beside_every_kink_stay_on_their_side(act, lo, hi, kinks):
    """The rounding step is 1/16 here, and the numbers are within 1/16 of a kink."""
    near = np.linspace(-0.06, 0.06, 62, dtype=np.float32)
    x = np.concatenate([[5.9, *(kink + near), -5.9] for kink in kinks]).astype(np.float32)
    args = {"x": x.reshape(1, 1, -1), "y": INT8.encode(np.ones(x.size, np.float32))}
    args |= {"stat": None, "gamma": None, "beta": None, "ctl": control(**CTL)}
    args |= {"n": 1, "c": 1, "s": x.size, "act": act, "lo": lo, "hi": hi, "key": KEY}
    out = call("pack_sides", {"S": "f32", "W": "q8"}, **args)["y"]
    plain = decoded(packed(x, NUMBERS), x.shape)
    assert {kink for kink in kinks if ((plain > kink) != (x > kink)).any()} == {*kinks}
    np.testing.assert_array_equal(_side(decoded(out, x.shape), kinks), _side(x, kinks))
