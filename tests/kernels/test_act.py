"""Fused activations, tested through bn_apply and bn_dx_eval with identity norms."""

from dataclasses import replace

import numpy as np
import pytest

from edgetrain.kernels import registry
from edgetrain.kernels.elementwise.formulas import FUSED, ROWS, fused

from . import naive_elementwise as naive
from .harness import call

CODES = {row.name: code for code, row in FUSED.items()} | {"none": 0}
LIMITS = {row.name: (row.a[1], row.b[1]) for row in FUSED.values()} | {
    "clip": (-1.5, 2.0), "leaky_relu": (0.1, 0.0), "none": (0.0, 0.0),
}  # fmt: skip
IDENTITY = np.array([[0], [1], [1]], np.float32)


def _run(name, code, variant, **arrays):
    lo, hi = LIMITS[code]
    sizes = {"n": 1, "c": 1, "s": arrays["x"].size, "act": CODES[code], "lo": lo, "hi": hi}
    return call(name, {"S": "f32"}, variant=variant, stat=IDENTITY, **arrays, **sizes)


@pytest.mark.parametrize("variant", ["plain", "fast"])
@pytest.mark.parametrize("code", CODES)
def test_act_value_and_slope_equal_naive(code, variant):
    x = np.concatenate([np.linspace(-6, 6, 1001), [0, -1.5, 2, 3, -3, 80, -80]]).astype(np.float32)
    if CODES[code] and code not in naive.SLOPE:  # the difference quotient has no kinks
        x = x[~np.isin(x, ROWS[code].kinks(*LIMITS[code]))]
    value = naive.value(code)(x.astype(np.float64), *LIMITS[code]) if CODES[code] else x
    slope = naive.slope(code)(x.astype(np.float64), value, *LIMITS[code]) if CODES[code] else 1.0
    y = _run("bn_apply", code, variant, x=x, y=x.shape)["y"]
    np.testing.assert_allclose(y, value, rtol=2e-6, atol=1e-6)
    dx = _run("bn_dx_eval", code, variant, x=x, dy=np.ones_like(x), dx=x.copy(), acc=0)["dx"]
    np.testing.assert_allclose(dx, slope + np.zeros_like(x), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("variant", ["plain", "fast"])
@pytest.mark.parametrize("code", CODES)
def test_act_propagates_nan(code, variant):
    x = np.array([1, np.nan, -1], np.float32)
    assert np.isnan(_run("bn_apply", code, variant, x=x, y=x.shape)["y"]).tolist() == [
        False,
        True,
        False,
    ]
    dx = _run("bn_dx_eval", code, variant, x=x, dy=x.copy(), dx=x.copy(), acc=0)["dx"]
    assert np.isnan(dx).tolist() == [False, True, False]


def test_codes_are_distinct_and_those_that_kernels_take():
    codes = [row.act for row in ROWS.values() if row.act]
    assert len({*codes}) == len(codes)
    for name in ("conv", "bn_apply", "csr_unpack", "pack_sides"):
        for kernel in registry.variants(name):
            for operand in kernel.spec.operands:
                if operand.name == "act":
                    assert operand.range[1:3] == (0, max(codes)), kernel.label


@pytest.mark.parametrize(
    "name, words",
    [("sin", "sine has no form for vectors"), ("floor", "no vjp"), ("exp", "same act")],
)
def test_a_function_that_cannot_be_fused_gets_no_code(name, words):
    with pytest.raises(ValueError, match=words):
        fused([*FUSED.values(), replace(ROWS[name], act=1 if name == "exp" else 63)])


def test_a_function_that_is_added_is_applied_by_convolutions_too(monkeypatch):
    monkeypatch.setitem(FUSED, 63, ROWS["gelu_tanh"])
    assert registry._with_activations("x:r:S[n] act=activation n") == "x:r:S[n] act=0..63 n"
