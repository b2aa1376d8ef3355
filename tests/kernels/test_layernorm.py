"""Layer, RMS, group and instance normalisation against float64."""

import numpy as np
import pytest

from . import naive_layernorm as naive
from .harness import DTYPES, call, same_for_threads

EPS = 1e-3
# family, shape [n, c, s], groups
CASES = [
    ("layer", (1, 1, 1), 1),
    ("layer", (5, 10, 1), 1),
    ("layer", (3, 700, 1), 1),
    ("rms", (4, 300, 1), 1),
    ("rms", (7, 16, 1), 1),
    ("group", (2, 6, 5), 3),
    ("group", (3, 4, 300), 4),
    ("group", (2, 8, 1), 2),
    ("group", (2, 6, 49), 1),
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


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("family", ["layer", "rms"])
@pytest.mark.parametrize("n", [1, 15, 64, 77, 192, 333])
def test_sums_on_vectors_equal_plain_bits(rng, family, n, storage):
    rows, dtype = 5, DTYPES[storage]
    x, dy = (rng.normal(size=(rows, n)).astype(dtype) for _ in range(2))
    stat = rng.random((1 if family == "rms" else 2) * rows).astype(np.float32)
    given = {"gamma": rng.normal(size=n).astype(np.float32), "rows": rows, "n": n}
    forward = given | ({} if family == "rms" else {"beta": given["gamma"] / 3}) | {"eps": EPS}
    for name, operands, outputs in (
        (f"{family}_norm", {"x": x, "y": x.shape, "stat": stat.shape} | forward, ("y", "stat")),
        (f"{family}_norm_dx", {"x": x, "stat": stat, "dy": dy, "dx": x, "acc": 1} | given, ("dx",)),
    ):
        plain, fast = (
            call(name, {"S": storage}, variant=variant, **dict(operands))
            for variant in ("plain", "fast")
        )
        assert all(plain[o].tobytes() == fast[o].tobytes() for o in outputs)
