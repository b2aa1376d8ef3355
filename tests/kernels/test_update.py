"""Optimizers against torch and naive twins, the gradient norm, skipped updates."""

import itertools

import numpy as np
import pytest
import torch

from edgetrain.kernels import control as layout

from . import naive_update
from .harness import DTYPES, control, same_for_threads

N, STEPS = 1000, 10


def real(ctl, name):
    return ctl.view(np.float64)[getattr(layout, name)]


def integer(ctl, name):
    return int(ctl[getattr(layout, name)])


def finish(g, ctl, max_norm=0.0, storage="f32"):
    """Return ctl after grad_sumsq and grad_finish."""
    partials = same_for_threads(
        "grad_sumsq", {"G": storage}, g=g, partials=np.zeros(64), n=g.size, first=1
    )["partials"]
    return same_for_threads(
        "grad_finish", partials=partials, ctl=ctl, max_norm=max_norm, c1=1 - 0.9, c2=1 - 0.999
    )["ctl"]


def betas(b1, b2):
    return {"c1": 1 - b1, "b2": b2, "c2": 1 - b2}


def start(rng, lr, **words):
    words = {"LR": lr, "LOSS_SCALE": 16, "NOMINAL": 8, "TARGETS": 4, "SEED": 5} | words
    return rng.standard_normal(N).astype(np.float32), control(**words)


def torch_steps(optimizer, w, gradients, max_norm):
    """Yield the weights after each step of torch."""
    parameter = torch.nn.Parameter(torch.tensor(w.copy()))
    optimizer = optimizer([parameter])
    for g in gradients:
        parameter.grad = torch.tensor(g)
        if max_norm:
            torch.nn.utils.clip_grad_norm_([parameter], max_norm)
        optimizer.step()
        yield parameter.detach().numpy().copy()


def gradients_of(rng):
    return rng.standard_normal((STEPS, N)).astype(np.float32)


# Gradients in the arena are scaled by LOSS_SCALE / NOMINAL * TARGETS = 16 / 8 * 4.
SCALED = np.float32(8)

SGD_CASES = [
    {"momentum": 0.0},
    {"momentum": 0.0, "weight_decay": 5e-4},
    {"momentum": 0.9, "weight_decay": 5e-4},
    {"momentum": 0.9, "dampening": 0.3},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
]


@pytest.mark.parametrize("max_norm", [0.0, 10.0])
@pytest.mark.parametrize("case", SGD_CASES)
def test_sgd_equals_torch_for_ten_steps(rng, case, max_norm):
    w, ctl = start(rng, 0.1)
    gradients = gradients_of(rng)
    reference = torch_steps(lambda p: torch.optim.SGD(p, lr=0.1, **case), w, gradients, max_norm)
    v = np.zeros(N, np.float32) if case["momentum"] else None
    for g, expected in zip(gradients, reference, strict=True):
        ctl = finish(g * SCALED, ctl, max_norm)
        out = same_for_threads(
            "sgd", {"W": "f32", "G": "f32", "V": "f32"}, w=w, g=g * SCALED, v=v, ctl=ctl, n=N,
            key=3, mu=case["momentum"], wd=case.get("weight_decay", 0.0),
            dampening=case.get("dampening", 0.0), nesterov=int(case.get("nesterov", False)),
        )  # fmt: skip
        w, v = out["w"], out.get("v")
        assert not out["g"].any()
        # weights of a few units: a few ulp over ten steps
        np.testing.assert_allclose(w, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("max_norm", [0.0, 10.0])
@pytest.mark.parametrize("decoupled", [0, 1])
def test_adam_equals_torch_for_ten_steps(rng, decoupled, max_norm):
    w, ctl = start(rng, 0.01)
    gradients = gradients_of(rng)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    options = {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.05}
    reference = torch_steps(lambda p: kind(p, **options), w, gradients, max_norm)
    m = v = np.zeros(N, np.float32)
    for g, expected in zip(gradients, reference, strict=True):
        ctl = finish(g * SCALED, ctl, max_norm)
        out = same_for_threads(
            "adam", dict.fromkeys("WGMV", "f32"), w=w, g=g * SCALED, m=m, v=v, ctl=ctl, n=N,
            key=3, **betas(0.9, 0.999), eps=1e-8, wd=0.05, decoupled=decoupled,
        )  # fmt: skip
        w, m, v = out["w"], out["m"], out["v"]
        assert not out["g"].any()
        np.testing.assert_allclose(w, expected, rtol=1e-6, atol=1e-6)


def test_adam_moments_and_bias_corrections_are_those_of_the_double_betas(rng):
    w, ctl = start(rng, 0.01, LOSS_SCALE=1, NOMINAL=1, TARGETS=1)
    g, zero = rng.standard_normal(N).astype(np.float32), np.zeros(N, np.float32)
    ctl = finish(g, ctl)
    out = same_for_threads(
        "adam", dict.fromkeys("WGMV", "f32"), w=w, g=g, m=zero, v=zero, ctl=ctl, n=N, key=3,
        **betas(0.9, 0.999), eps=1e-8, wd=0.0, decoupled=0,
    )  # fmt: skip
    # 1 - 0.999 in float32 is off by 1.3e-5; three roundings are below 2e-7
    exact = g.astype(np.float64)
    np.testing.assert_allclose(out["v"], (1 - 0.999) * exact**2, rtol=3e-7)
    np.testing.assert_allclose(out["m"], (1 - 0.9) * exact, rtol=3e-7)
    np.testing.assert_allclose([real(ctl, "BIAS1"), real(ctl, "BIAS2")], [0.1, 0.001], rtol=1e-7)


def test_sgd_in_fp16_follows_naive_twin_within_rounding(rng):
    w, ctl = start(rng, 0.1)
    storages = dict.fromkeys("WGV", "f16")
    w16, v16 = w.astype(np.float16), np.zeros(N, np.float16)
    w64, v64 = w16.astype(np.float64), np.zeros(N)
    options = {"mu": 0.9, "wd": 5e-4, "dampening": 0.0, "nesterov": 1}
    for step, g in enumerate(gradients_of(rng)):
        g = (g * SCALED).astype(np.float16)
        ctl[layout.STEP] = step
        ctl = finish(g, ctl, storage="f16")
        out = same_for_threads("sgd", storages, w=w16, g=g, v=v16, ctl=ctl, n=N, key=3, **options)
        w16, v16 = out["w"], out["v"]
        exact = g.astype(np.float64) / SCALED
        w64, v64 = naive_update.sgd(w64, exact, v64, lr=0.1, **options, first=step == 0)
    difference = w16 - w64
    # ten roundings of values below 8, each with a deviation below 2^-8 / sqrt(6)
    assert np.abs(difference).max() < 10 * 2.0**-8
    assert np.abs(difference.mean()) < 4 * difference.std() / np.sqrt(N)


@pytest.mark.parametrize("storages", list(itertools.product(("f16", "f32"), repeat=3)))
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e4])
def test_sgd_has_the_same_bits_on_vectors(rng, storages, scale):
    arrays = [(rng.standard_normal(N) * scale).astype(DTYPES[name]) for name in storages]
    w, g, v = arrays
    w[:5], v[7], g[9] = [np.inf, -np.inf, np.nan, -0.0, 0.0], 65504, 0
    ctl = control(LR=0.1, GRAD_FACTOR=1.0, ADAM_T=2, SEED=5, STEP=3)
    operands = {"w": w, "g": g, "v": v, "ctl": ctl, "n": N, "key": 7, "mu": 0.9, "wd": 1e-4}
    kinds = dict(zip("WGV", storages, strict=True))
    plain, wide = (
        same_for_threads("sgd", kinds, variant=name, dampening=0.1, nesterov=1, **operands)
        for name in ("plain", "wide")
    )
    for key, array in plain.items():
        assert array.tobytes() == wide[key].tobytes(), key


@pytest.mark.parametrize("size", [3e-6, 1.0, 3e4])
def test_adam_in_fp16_keeps_tiny_and_huge_second_moments(rng, size):
    w, ctl = start(rng, 0.01, LOSS_SCALE=1, NOMINAL=1, TARGETS=1)
    storages = {"W": "f32", "G": "f32", "M": "f16", "V": "f16"}
    m16 = v16 = np.zeros(N, np.float16)
    m64 = v64 = np.zeros(N)
    w64 = w.astype(np.float64)
    options = {"eps": 1e-12, "wd": 0.0, "decoupled": 1}
    for step in range(STEPS):
        g = (np.full(N, size) * (1 + 0.1 * rng.standard_normal(N))).astype(np.float32)
        ctl[layout.STEP] = step
        ctl = finish(g, ctl)
        out = same_for_threads(
            "adam", storages, w=w, g=g, m=m16, v=v16, ctl=ctl, n=N, key=3, **betas(0.9, 0.999),
            **options,
        )  # fmt: skip
        w, m16, v16 = out["w"], out["m"], out["v"]
        w64, m64, v64 = naive_update.adam(
            w64, g, m64, v64, lr=0.01, b1=0.9, b2=0.999, **options, t=step + 1
        )
    assert np.isfinite(v16.astype(np.float32)).all() and v16.all()
    # at 3e-6 moments are a handful of fp16's smallest steps, so single elements scatter
    assert np.abs((w - w64).mean()) < 0.004
    np.testing.assert_allclose(v16.astype(np.float64).mean(), np.sqrt(v64).mean(), rtol=0.02)


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_update_writes_nothing_but_zero_gradients_when_skipped(rng, name, storage):
    dtype = DTYPES[storage]
    w, ctl = start(rng, 0.1, ADAM_T=7, BIAS1=0.5)
    g = rng.standard_normal(N).astype(dtype)
    g[17] = np.nan
    ctl = finish(g, ctl, storage=storage)
    assert (integer(ctl, "SKIP"), integer(ctl, "ADAM_T"), real(ctl, "BIAS1")) == (1, 7, 0.5)
    state = rng.standard_normal(N).astype(dtype)
    operands = {"w": w.astype(dtype), "g": g, "v": state, "ctl": ctl, "n": N, "key": 0}
    if name == "sgd":
        operands |= {"mu": 0.9, "wd": 0.1, "dampening": 0.0, "nesterov": 0}
    else:
        operands |= {"m": state, **betas(0.9, 0.99), "eps": 1e-8, "wd": 0.1, "decoupled": 0}
    out = same_for_threads(
        name, dict.fromkeys("WGMV" if name == "adam" else "WGV", storage), **operands
    )
    for key in out.keys() - {"g"}:
        np.testing.assert_array_equal(out[key], operands[key])
    assert not out["g"].any()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_grad_finish_skips_when_a_gradient_is_not_finite(rng, bad, storage):
    g = rng.standard_normal(N).astype(DTYPES[storage])
    g[-1] = bad
    ctl = finish(g, start(rng, 0.1)[1], max_norm=1.0, storage=storage)
    assert (integer(ctl, "SKIP"), integer(ctl, "ADAM_T")) == (1, 0)


def test_grad_finish_skips_when_nothing_was_counted():
    ctl = finish(np.zeros(4, np.float32), control(LOSS_SCALE=1, NOMINAL=8))
    assert (integer(ctl, "SKIP"), integer(ctl, "ADAM_T")) == (1, 0)


@pytest.mark.parametrize("n", [1, 3, 63, 64, 1000, 4097])
def test_grad_sumsq_adds_several_parameters(rng, n):
    a, b = rng.standard_normal((2, n)).astype(np.float32)
    partials = np.full(64, 7.0)
    for first, g in ((1, a), (0, b)):
        partials = same_for_threads(
            "grad_sumsq",
            {"G": "f32"},
            threads=(1, 2, 64, 65),
            g=g,
            partials=partials,
            n=n,
            first=first,
        )["partials"]
    expected = (a.astype(np.float64) ** 2).sum() + (b.astype(np.float64) ** 2).sum()
    np.testing.assert_allclose(partials.sum(), expected, rtol=1e-14)


def test_grad_finish_clips_and_reports_the_unscaled_norm(rng):
    g = rng.standard_normal(N).astype(np.float32)
    ctl = finish(g, start(rng, 0.1)[1], max_norm=0.5)
    norm = np.sqrt((g.astype(np.float64) ** 2).sum()) / SCALED
    found = real(ctl, "GRAD_NORM"), real(ctl, "GRAD_FACTOR")
    np.testing.assert_allclose(found, (norm, 0.5 / (norm + 1e-6) / SCALED), rtol=1e-12)
    np.testing.assert_allclose((real(ctl, "BIAS1"), real(ctl, "BIAS2")), (0.1, 0.001), rtol=2e-5)


def test_the_rate_of_a_group_is_a_multiple_of_the_runs(rng):
    """Two float32 hold a float64 ratio's digits; group_end restores the run's rate."""
    _, ctl = start(rng, 0.3)
    ratio = 0.1 / 0.3
    high = float(np.float32(ratio))
    within = same_for_threads("group_begin", ctl=ctl, high=high, low=ratio - high)["ctl"]
    assert real(within, "LR") == pytest.approx(0.1, rel=1e-14)
    behind = same_for_threads("group_end", ctl=within)["ctl"]
    assert real(behind, "LR") == 0.3
