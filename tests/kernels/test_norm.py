"""Batch normalisation against numpy in float64, running statistics against torch."""

import numpy as np
import pytest
import torch

from . import naive_norm
from .harness import DTYPES, call, control, same_for_threads

SHAPES = [(4, 3, 25), (2, 5, 1), (1, 2, 300), (3, 17, 16), (2, 1, 1030), (8, 13, 4)]
VARIANTS = ["plain", "fast"]
# Float32 arithmetic near 1; fp16 storage adds an error of 2^-11 to numbers up to 5.
TOLERANCE = {"f32": 5e-6, "f16": 4e-3}


def _arrays(shape, storage, seed=5):
    rng = np.random.default_rng(seed)
    x, dy, dx = (rng.standard_normal((3, *shape)) + 0.5).astype(DTYPES[storage])
    gamma, beta, dgamma, dbeta = rng.standard_normal((4, shape[1])).astype(np.float32)
    stat = naive_norm.stats(x, 1e-3).astype(np.float32)
    return x, dy, dx, gamma, beta, dgamma, dbeta, stat


def _sizes(shape):
    return dict(zip("ncs", shape, strict=True))


def _close(found, expected, storage, scale=1.0):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=TOLERANCE[storage] * scale)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_bn_stats_equal_naive(shape, storage, variant):
    x = _arrays(shape, storage)[0] + DTYPES[storage](30)
    out = same_for_threads(
        "bn_stats",
        {"S": storage},
        variant=variant,
        x=x,
        stat=(3, shape[1]),
        eps=1e-3,
        **_sizes(shape),
    )
    np.testing.assert_allclose(out["stat"], naive_norm.stats(x, np.float32(1e-3)), rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_bn_apply_equals_naive(shape, storage, affine, variant):
    x, _, _, gamma, beta, _, _, stat = _arrays(shape, storage)
    weights = {"gamma": gamma, "beta": beta} if affine else {"gamma": None, "beta": None}
    fused = {"act": 2, "lo": -1.0, "hi": 1.5}
    out = same_for_threads(
        "bn_apply",
        {"S": storage},
        variant=variant,
        x=x,
        stat=stat,
        y=x.shape,
        **weights,
        **fused,
        **_sizes(shape),
    )
    expected = naive_norm.act(2, naive_norm.normalised(x, stat, **weights), -1.0, 1.5)
    _close(out["y"], expected, storage)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("code", [0, 1, 5])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_bn_backward_equals_naive(shape, storage, code, variant):
    x, dy, dx, gamma, beta, dgamma, dbeta, stat = _arrays(shape, storage)
    common = {"x": x, "stat": stat, "gamma": gamma, "beta": beta, "dy": dy}
    common |= {"act": code, "lo": 0.0, "hi": 0.0, **_sizes(shape)}
    sums, expected, frozen = naive_norm.backward(x, stat, gamma, beta, dy, code)
    size = np.sqrt(x.size)
    out = same_for_threads(
        "bn_reduce",
        {"S": storage},
        variant=variant,
        sums=(2, shape[1]),
        dgamma=dgamma,
        dbeta=dbeta,
        **common,
    )
    np.testing.assert_allclose(out["sums"], sums, rtol=1e-5, atol=1e-6 * size)
    np.testing.assert_allclose(out["dbeta"], dbeta + sums[0], rtol=1e-5, atol=1e-6 * size)
    np.testing.assert_allclose(out["dgamma"], dgamma + sums[1], rtol=1e-5, atol=1e-6 * size)
    scale = max(np.abs(expected).max(), np.abs(frozen).max(), 1)
    back = same_for_threads(
        "bn_dx",
        {"S": storage},
        variant=variant,
        sums=sums.astype(np.float32),
        dx=dx,
        acc=1,
        **common,
    )
    _close(back["dx"], expected + dx, storage, scale)
    back = same_for_threads("bn_dx_eval", {"S": storage}, variant=variant, dx=dx, acc=1, **common)
    _close(back["dx"], frozen + dx, storage, scale)


@pytest.mark.parametrize("variant", VARIANTS)
def test_bn_dx_of_a_large_mean_is_as_exact(variant):
    shape = (3, 17, 16)
    x, dy, _, gamma, beta, *_ = _arrays(shape, "f32")
    x += np.float32(30_000)
    stat = naive_norm.stats(x, 1e-3).astype(np.float32)
    sums, expected, _ = naive_norm.backward(x, stat, gamma, beta, dy, 0)
    out = same_for_threads(
        "bn_dx", {"S": "f32"}, variant=variant, x=x, stat=stat, gamma=gamma, beta=beta, dy=dy,
        sums=sums.astype(np.float32), dx=shape, acc=0, act=0, lo=0.0, hi=0.0, **_sizes(shape),
    )  # fmt: skip
    _close(out["dx"], expected, "f32", np.abs(expected).max())


@pytest.mark.parametrize("code", [0, 1, 2, 5])
@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("shape", [*SHAPES, (3, 6, 49), (2, 4, 2060)])
def test_batch_norm_has_the_same_bits_by_numbers_and_by_vectors(shape, storage, code):
    x, dy, dx, gamma, beta, dgamma, dbeta, stat = _arrays(shape, storage)
    dy.flat[::7] = -0.0
    read = {"x": x, "stat": stat, "gamma": gamma, "beta": beta}
    fused = {"act": code, "lo": -1.0, "hi": 1.5}
    sums = np.ones((2, shape[1]), np.float32)
    for name, operands in {
        "bn_stats": {"x": x, "stat": (3, shape[1]), "eps": 1e-3},
        "bn_apply": {**read, "y": x.shape, **fused},
        "bn_reduce": {**read, "dy": dy, "sums": sums, "dgamma": dgamma, "dbeta": dbeta, **fused},
        "bn_dx": {**read, "dy": dy, "sums": sums, "dx": dx, "acc": 1, **fused},
        "bn_dx_eval": {**read, "dy": dy, "dx": dx, "acc": 0, **fused},
    }.items():
        plain, fast = (
            call(name, {"S": storage}, variant=variant, **operands, **_sizes(shape))
            for variant in VARIANTS
        )
        for key, array in plain.items():
            assert array.tobytes() == fast[key].tobytes(), (name, key)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["bn_dx", "bn_dx_eval"])
def test_bn_dx_overwrites_dy(name, variant):
    x, dy, dx, gamma, beta, _, _, stat = _arrays((3, 4, 37), "f16")
    common = {"x": x, "stat": stat, "gamma": gamma, "beta": beta, "dy": dy, "acc": 0}
    common |= {"act": 1, "lo": 0.0, "hi": 0.0, **_sizes(x.shape)}
    if name == "bn_dx":
        common["sums"] = np.ones((2, 4), np.float32)
    apart = call(name, {"S": "f16"}, variant=variant, dx=dx, **common)["dx"]
    np.testing.assert_array_equal(
        call(name, {"S": "f16"}, variant=variant, dx="dy", **common)["dx"], apart
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_bn_apply_overwrites_x(variant):
    x, _, _, gamma, beta, _, _, stat = _arrays((3, 4, 37), "f16")
    common = {"x": x, "stat": stat, "gamma": gamma, "beta": beta, **_sizes(x.shape)}
    common |= {"act": 1, "lo": 0.0, "hi": 0.0}
    apart = call("bn_apply", {"S": "f16"}, variant=variant, y=x.shape, **common)["y"]
    np.testing.assert_array_equal(
        call("bn_apply", {"S": "f16"}, variant=variant, y="x", **common)["y"], apart
    )


def test_bn_running_equals_torch():
    norm = torch.nn.BatchNorm2d(3, momentum=0.3, eps=1e-3)
    mean, var = np.zeros(3, np.float32), np.ones(3, np.float32)
    staged = {"sm": np.full(3, np.nan, np.float32), "sv": np.full(3, np.nan, np.float32)}
    for seed in range(3):  # several microbatches of one minibatch
        x = _arrays((4, 3, 25), "f32", seed)[0]
        norm(torch.from_numpy(x.reshape(4, 3, 5, 5)))
        stat = call("bn_stats", {"S": "f32"}, x=x, stat=(3, 3), eps=1e-3, n=4, c=3, s=25)["stat"]
        ctl = control(MICROBATCH=seed)
        moved = {"rm": mean, "rv": var, "c": 3, "count": 100, "momentum": 0.3, "ctl": ctl}
        staged = call("bn_running", stat=stat, **moved, **staged)
    mean, var = staged["sm"], staged["sv"]
    np.testing.assert_allclose(mean, norm.running_mean.numpy(), rtol=1e-6)
    np.testing.assert_allclose(var, norm.running_var.numpy(), rtol=1e-6)
    frozen = call("bn_eval_stats", rm=mean, rv=var, stat=(3, 3), c=3, eps=1e-3)["stat"]
    np.testing.assert_allclose(frozen, [mean, 1 / np.sqrt(var + 1e-3), var], rtol=1e-6)


@pytest.mark.parametrize("bad", [None, np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("n", [1, 3, 64, 200])
def test_stat_check_leaves_finite_sums_alone_and_spoils_others(bad, n):
    staged = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    partials = np.random.default_rng(0).random(64)
    if bad is not None:
        staged[n // 2] = bad
    found = same_for_threads("stat_check", s=staged, partials=partials, n=n)["partials"]
    if bad is None or np.isfinite(bad):
        assert found.tobytes() == partials.tobytes()
    else:
        assert np.isnan(found.sum()) and np.isnan(found).sum() == 1


@pytest.mark.parametrize("skip", [0, 1])
def test_stat_commit_writes_only_in_a_step_that_counts(skip):
    staged, kept = np.arange(37, dtype=np.float32), np.full(37, 0.5, np.float32)
    ctl = control(SKIP=skip)
    found = same_for_threads("stat_commit", s=staged, r=kept, ctl=ctl, n=37)["r"]
    np.testing.assert_array_equal(found, kept if skip else staged)
