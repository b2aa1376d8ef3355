"""Losses compared with naive twins and torch: masks, ignored targets, accumulation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from . import naive_loss
from .harness import DTYPES, call, control, same_for_threads

# A float32 loss is off by a few ulp, an fp16 gradient by half an ulp of fp16.
TOLERANCE = {"f32": 2e-6, "f16": 2.0**-10}
TINY = {"f32": 1e-9, "f16": 1e-7}


def totals(partials, **words):
    """Return loss sum, targets and correct after loss_total."""
    ctl = call("loss_total", partials=partials, ctl=control(**words))["ctl"]
    return ctl.view(np.float64)[19], ctl[7], ctl[6]


def assert_totals(partials, expected):
    loss, targets, correct = totals(partials)
    np.testing.assert_allclose(loss, expected[0], rtol=2e-6, atol=1e-6)
    assert (targets, correct) == (expected[1], expected[2])


@given(
    outer=st.integers(1, 12),
    n=st.one_of(st.integers(1, 40), st.sampled_from((256, 257, 600))),
    inner=st.sampled_from((1, 1, 3, 300)),
    rows=st.sampled_from((1, 2)),
    smoothing=st.sampled_from((0.0, 0.1)),
    storage=st.sampled_from(("f32", "f16")),
    masked=st.integers(0, 4),
    acc=st.integers(0, 1),
    in_place=st.booleans(),
    seed=st.integers(0, 99),
)
def test_ce_equals_naive_twin(
    outer, n, inner, rows, smoothing, storage, masked, acc, in_place, seed
):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((outer, n, inner)) * 4).astype(DTYPES[storage])
    t = rng.integers(0, n, (outer, inner)).astype(np.int32)
    t[rng.random(t.shape) < 0.2] = -100
    samples = max(0, -(-outer // rows) - masked)
    ctl = control(COUNT=samples, LOSS_SCALE=8, NOMINAL=4)
    shape = {"outer": outer, "n": n, "inner": inner, "rows": rows}
    shape |= {"smoothing": smoothing, "ignore": -100}
    expected = naive_loss.cross_entropy(x, t, np.float32(smoothing), -100, samples, rows)
    out = same_for_threads("ce_loss", {"S": storage}, x=x, t=t, partials=(192,), ctl=ctl, **shape)
    assert_totals(out["partials"], expected)
    in_place = in_place and not acc
    dx = "x" if in_place else rng.standard_normal(x.shape).astype(x.dtype)
    found = same_for_threads("ce_bwd", {"S": storage}, x=x, t=t, dx=dx, ctl=ctl, acc=acc, **shape)[
        "dx"
    ]
    gradient = 2 * expected[3] + (dx.astype(np.float64) if acc else 0)
    np.testing.assert_allclose(found, gradient, TOLERANCE[storage], 2 * TOLERANCE["f32"])


@given(
    name=st.sampled_from(sorted(naive_loss.ELEMENTWISE)),
    samples=st.integers(0, 20),
    rows=st.sampled_from((1, 7)),
    masked=st.integers(0, 3),
    storage=st.sampled_from(("f32", "f16")),
    acc=st.integers(0, 1),
    in_place=st.booleans(),
    seed=st.integers(0, 99),
)
def test_elementwise_loss_equals_naive_twin(
    name, samples, rows, masked, storage, acc, in_place, seed
):
    rng = np.random.default_rng(seed)
    n = (samples + masked) * rows
    x = (rng.standard_normal(n) * 3).astype(DTYPES[storage])
    t = rng.random(n).astype(np.float32)
    ctl = control(COUNT=samples, LOSS_SCALE=8, NOMINAL=4)
    expected = naive_loss.elementwise(name, x, t, samples, rows)
    operands = {"x": x, "t": t, "ctl": ctl, "n": n, "rows": rows}
    out = same_for_threads(f"{name}_loss", {"S": storage}, partials=(192,), **operands)
    assert_totals(out["partials"], expected)
    in_place = in_place and not acc
    dx = "x" if in_place else rng.standard_normal(n).astype(x.dtype)
    operands = {"x": x, "t": t, "dx": dx, **operands}
    found = same_for_threads(f"{name}_bwd", {"S": storage}, acc=acc, **operands)["dx"]
    gradient = 2 * expected[3] + (dx.astype(np.float64) if acc else 0)
    np.testing.assert_allclose(found, gradient, TOLERANCE[storage], 2 * TOLERANCE["f32"])


def test_ce_equals_torch_when_logits_are_large_and_smoothed(rng):
    x = (rng.standard_normal((6, 1000)) * 40).astype(np.float32)
    t = rng.integers(0, 1000, 6).astype(np.int32)
    logits = torch.tensor(x, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(
        logits, torch.tensor(t).long(), reduction="sum", label_smoothing=0.1
    )
    loss.backward()
    shape = {"outer": 6, "n": 1000, "inner": 1, "rows": 1, "smoothing": 0.1, "ignore": -100}
    ctl = control(COUNT=6, LOSS_SCALE=1, NOMINAL=1)
    partials = call("ce_loss", {"S": "f32"}, x=x, t=t, partials=(192,), ctl=ctl, **shape)
    np.testing.assert_allclose(totals(partials["partials"])[0], loss.item(), rtol=1e-6)
    found = call("ce_bwd", {"S": "f32"}, x=x, t=t, dx=x.shape, ctl=ctl, acc=0, **shape)["dx"]
    # softmax of logits 100 apart: their float32 differences are exact to 2^-17
    np.testing.assert_allclose(found, logits.grad.numpy(), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_ce_passes_non_finite_logits_on(rng, bad):
    x = rng.standard_normal((3, 20)).astype(np.float32)
    x[1, 4] = bad
    t = np.zeros(3, np.int32)
    shape = {"outer": 3, "n": 20, "inner": 1, "rows": 1, "smoothing": 0.0, "ignore": -1}
    ctl = control(COUNT=3, LOSS_SCALE=1, NOMINAL=1)
    partials = call("ce_loss", {"S": "f32"}, x=x, t=t, partials=(192,), ctl=ctl, **shape)
    assert not np.isfinite(totals(partials["partials"])[0])
    found = call("ce_bwd", {"S": "f32"}, x=x, t=t, dx=x.shape, ctl=ctl, acc=0, **shape)["dx"]
    np.testing.assert_array_equal(np.isfinite(found).all(1), [True, False, True])


def test_ce_ignores_targets_outside_the_classes(rng):
    x = rng.standard_normal((3, 5)).astype(np.float32)
    t = np.array([1, 2**31 - 1, -(2**31)], np.int32)
    shape = {"outer": 3, "n": 5, "inner": 1, "rows": 1, "smoothing": 0.0, "ignore": -100}
    ctl = control(COUNT=3, LOSS_SCALE=1, NOMINAL=1)
    found = call("ce_bwd", {"S": "f32"}, x=x, t=t, dx=x.shape, ctl=ctl, acc=0, **shape)["dx"]
    assert not found[1:].any() and found[0].all()


def test_loss_total_adds_and_counters_reset_clears():
    partials = np.arange(192, dtype=np.float64)
    words = {"LOSS_SUM": 2.5, "TARGETS": 10, "CORRECT": 20, "STEP": 7}
    found = totals(partials, **words)
    sums = partials.reshape(64, 3).sum(0)
    assert found == (2.5 + sums[0], 10 + sums[1], 20 + sums[2])
    ctl = call("counters_reset", ctl=control(**words))["ctl"]
    np.testing.assert_array_equal(ctl, control(STEP=7))
