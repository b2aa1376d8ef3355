"""Layer, RMS, group and instance normalisation compared with float64."""

import numpy as np
import pytest

from . import harness
from . import naive_layernorm as naive
from .harness import DTYPES, call, same_for_threads

EPS = 1e-3
# family, shape [n, c, s], groups
CASES = [
    ("layer", (1, 1, 1), 1),
    ("layer", (5, 10, 1), 1),
    ("layer", (3, 700, 1), 1),
    ("layer", (131, 21, 1), 1),  # two sums of 64 rows, and a remainder
    ("layer", (3, 2100, 1), 1),  # a row of three blocks
    ("rms", (2, 6000, 1), 1),  # a long row
    ("rms", (4, 300, 1), 1),
    ("rms", (7, 16, 1), 1),
    ("group", (2, 6, 5), 3),
    ("group", (3, 4, 300), 4),
    ("group", (2, 8, 1), 2),
    ("group", (2, 6, 49), 1),
    ("group", (3, 3, 1030), 3),
    ("group", (1, 5, 1030), 1),
]


def _sizes(family, shape, groups):
    n, c, s = shape
    return {"n": n, "c": c, "s": s, "groups": groups} if family == "group" else {"rows": n, "n": c}


def _close(found, expected, storage, terms=1):
    limit = 2e-3 if storage == "f16" else 4e-6
    size = np.abs(expected).max() + 1
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=limit, atol=limit * size)


def _affine(rng, family, c, present):
    gamma, beta = (rng.normal(size=c).astype(np.float32) + 1 for _ in range(2))
    if not present:
        gamma, beta = np.ones(c, np.float32), np.zeros(c, np.float32)
    beta = np.zeros(c, np.float32) if family == "rms" else beta
    given = {"gamma": gamma if present else None}
    return gamma, beta, given | ({} if family == "rms" else {"beta": beta if present else None})


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("family, shape, groups", CASES)
def test_norm_and_gradients_equal_naive(rng, family, shape, groups, present, storage):
    dtype, centre, kind = DTYPES[storage], family != "rms", {"S": storage}
    x, dy, dx = (rng.normal(size=shape).astype(dtype) for _ in range(3))
    x += 2
    gamma, beta, affine = _affine(rng, family, shape[1], present)
    sizes = _sizes(family, shape, groups)
    rows = shape[0] * groups
    stat = ((2 if centre else 1) * rows,)
    out = same_for_threads(
        f"{family}_norm", kind, x=x, y=shape, stat=stat, eps=EPS, **affine, **sizes
    )
    wide = x.astype(np.float64)
    _close(out["y"], naive.forward(wide, gamma, beta, groups, EPS, centre), storage)
    statistics = naive.statistics(wide, groups, EPS, centre)[0 if centre else 1 :]
    np.testing.assert_allclose(
        out["stat"], np.concatenate([v.ravel() for v in statistics]), rtol=1e-5
    )
    inside = same_for_threads(
        f"{family}_norm", kind, x=x, y="x", stat=stat, eps=EPS, **affine, **sizes
    )
    assert inside["y"].tobytes() == out["y"].tobytes()
    saved = {"x": x, "stat": out["stat"], "dy": dy} | sizes
    back = naive.dx(wide, gamma, dy.astype(np.float64), groups, EPS, centre)
    for acc in (0, 1):
        found = same_for_threads(
            f"{family}_norm_dx", kind, gamma=affine["gamma"], dx=dx, acc=acc, **saved
        )
        _close(found["dx"], back + acc * dx, storage)
    start = {"dgamma": gamma} if family == "rms" else {"dgamma": gamma, "dbeta": beta}
    found = same_for_threads(f"{family}_norm_dparam", kind, **start, **saved)
    parts = naive.dparam(wide, dy.astype(np.float64), groups, EPS, centre)
    for name, term in zip(start, parts, strict=False):
        _close(found[name], start[name] + term, "f32")


def test_norm_parameters_may_be_frozen(rng):
    x, dy = (rng.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
    stat = np.ones(6, np.float32)
    found = same_for_threads(
        "layer_norm_dparam", {"S": "f32"}, x=x, stat=stat, dy=dy, dbeta=np.zeros(4, np.float32),
        rows=3, n=4,
    )  # fmt: skip
    np.testing.assert_allclose(found["dbeta"], dy.sum(axis=0), rtol=1e-6)


def _calls(rng, family, shape, groups, present, storage):
    """Return (kernel, operands except sizes, names of outputs) of a family's three kernels."""
    dtype = DTYPES[storage]
    x, dy, dx = (rng.normal(size=shape).astype(dtype) for _ in range(3))
    gamma, beta, affine = _affine(rng, family, shape[1], present)
    rows = shape[0] * groups
    stat = rng.random((1 if family == "rms" else 2) * rows).astype(np.float32)
    start = {"dgamma": gamma} if family == "rms" else {"dgamma": gamma, "dbeta": beta}
    saved = {"x": x, "stat": stat, "dy": dy}
    slope = saved | {"gamma": affine["gamma"], "dx": dx, "acc": 1}
    whole = {"x": x, "y": shape, "stat": stat.shape, "eps": EPS} | affine
    return (
        (f"{family}_norm", whole, ("y", "stat")),
        (f"{family}_norm_dx", slope, ("dx",)),
        (f"{family}_norm_dparam", saved | start, tuple(start)),
    )


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize(
    "family, shape, groups",
    [
        *CASES,
        *[("layer", (rows, n, 1), 1) for rows, n in ((6, 15), (9, 64), (5, 192), (70, 333))],
        ("rms", (6, 77, 1), 1),
        ("layer", (2, 4099, 1), 1),
        ("group", (5, 4, 16), 2),
        ("group", (1, 2, 9000), 1),
    ],
)
def test_vectors_have_the_bits_of_numbers(rng, family, shape, groups, present, storage):
    sizes = _sizes(family, shape, groups)
    for name, operands, outputs in _calls(rng, family, shape, groups, present, storage):
        plain, fast = (
            same_for_threads(name, {"S": storage}, variant=variant, **operands, **sizes)
            for variant in ("plain", "fast")
        )
        assert all(plain[o].tobytes() == fast[o].tobytes() for o in outputs), name


@pytest.mark.parametrize("family, present", [("layer", True), ("layer", False), ("rms", True)])
def test_rows_that_no_cache_holds_have_the_bits_of_numbers(rng, family, present):
    """Over 2^20 elements, which the vector variant prefetches."""
    if harness.INTERPRET:
        pytest.skip("a million elements")
    shape = (1100, 960, 1)
    sizes = _sizes(family, shape, 1)
    for name, operands, outputs in _calls(rng, family, shape, 1, present, "f32"):
        plain, fast = (
            call(name, {"S": "f32"}, variant=variant, **operands, **sizes)
            for variant in ("plain", "fast")
        )
        assert all(plain[o].tobytes() == fast[o].tobytes() for o in outputs), name


@pytest.mark.parametrize("variant", ["plain", "fast"])
@pytest.mark.parametrize("family, shape, groups", [("layer", (6, 700, 1), 1),
                                                   ("group", (2, 6, 300), 2)])  # fmt: skip
def test_a_large_mean_costs_no_precision(rng, family, shape, groups, variant):
    """With means of 4000 deviations, only what float32 x cannot represent is lost."""
    x, dy = ((rng.normal(size=shape) + mean).astype(np.float32) for mean in (4000, 0))
    gamma, beta, affine = _affine(rng, family, shape[1], True)
    sizes = _sizes(family, shape, groups) | {"variant": variant}
    stat = (2 * shape[0] * groups,)
    out = call(f"{family}_norm", {"S": "f32"}, x=x, y=shape, stat=stat, eps=EPS, **affine, **sizes)
    wide, steep = x.astype(np.float64), dy.astype(np.float64)
    # the mean is rounded to 2^-12, that is 2^-12 of the deviation
    rounded = {"rtol": 0, "atol": 2.0**-9}
    expected = naive.forward(wide, gamma, beta, groups, EPS, True)
    np.testing.assert_allclose(out["y"], expected, **rounded)
    saved = {"x": x, "stat": out["stat"], "dy": dy} | sizes
    back = naive.dx(wide, gamma, steep, groups, EPS, True)
    found = call(f"{family}_norm_dx", {"S": "f32"}, gamma=gamma, dx=x, acc=0, **saved)
    np.testing.assert_allclose(found["dx"], back, **rounded)
    zeros = np.zeros(shape[1], np.float32)
    found = call(f"{family}_norm_dparam", {"S": "f32"}, dgamma=zeros, dbeta=zeros, **saved)
    for name, term in zip(("dgamma", "dbeta"), naive.dparam(wide, steep, groups, EPS, True),
                          strict=True):  # fmt: skip
        np.testing.assert_allclose(found[name], term, rtol=0, atol=2.0**-9 * shape[0] * shape[2])
