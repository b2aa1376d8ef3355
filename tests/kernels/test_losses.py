"""Losses other than cross-entropy, squared error and the like, compared with naive twins."""

import numpy as np
import pytest

from edgetrain.kernels import control as layout

from . import naive_loss
from .harness import DTYPES, call, control, same_for_threads

TOLERANCE = {"f32": 3e-6, "f16": 2.0**-9}


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(8, 5, 1), (6, 3, 4)])
@pytest.mark.parametrize("acc", [0, 1])
def test_weighted_cross_entropy_equals_its_twin(storage, smoothing, shape, acc):
    rng = np.random.default_rng(0)
    outer, n, inner = shape
    x = rng.standard_normal(shape).astype(DTYPES[storage])
    t = rng.integers(0, n, (outer, inner)).astype(np.int32)
    t[0] = -100
    cw = rng.random(n).astype(np.float32)
    ctl = control(COUNT=outer // 2 - 1, LOSS_SCALE=8, NOMINAL=4)
    same = {"x": x, "t": t, "cw": cw, "ctl": ctl, "outer": outer, "n": n, "inner": inner}
    same |= {"rows": 2, "smoothing": smoothing, "ignore": -100}
    loss, weights, correct, gradient = naive_loss.weighted_cross_entropy(
        x, t, cw, np.float32(smoothing), -100, outer // 2 - 1, 2
    )
    out = same_for_threads("wce_loss", {"S": storage}, partials=(256,), **same)
    sums = call("weighted_total", partials=out["partials"], ctl=control())["ctl"]
    found = sums.view(np.float64)[[layout.LOSS_SUM, layout.WEIGHT]]
    np.testing.assert_allclose(found, (loss, weights), rtol=3e-6)
    assert sums[layout.CORRECT] == correct
    assert sums[layout.TARGETS] == (t[: outer - 2] != -100).sum()
    before = rng.standard_normal(shape).astype(x.dtype)
    dx = before if acc else "x"
    found = same_for_threads("wce_bwd", {"S": storage}, dx=dx, acc=acc, **same)["dx"]
    expected = 2 * gradient + (before.astype(np.float64) if acc else 0)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[storage], atol=TOLERANCE[storage])


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize(
    "name, own",
    [("huber", [1.0]), ("huber", [0.3]), ("bce_pos", [3.5]), ("focal", [0.25, 2.0]),
     ("focal", [0.7, 0.5]), ("focal", [0.5, 0.0])],
)  # fmt: skip
def test_elementwise_losses_equal_their_twins(storage, name, own):
    rng, n, rows, samples = np.random.default_rng(0), 300, 3, 90
    x, t = rng.standard_normal(n).astype(DTYPES[storage]), rng.random(n).astype(np.float32)
    ctl = control(COUNT=samples, LOSS_SCALE=8, NOMINAL=4)
    same = {"x": x, "t": t, "ctl": ctl, "n": n, "rows": rows}
    same |= dict(zip("pq", own, strict=False))
    value, slope = getattr(naive_loss, name)(x.astype(np.float64), t.astype(np.float64), *own)
    out = same_for_threads(f"{name}_loss", {"S": storage}, partials=(192,), **same)
    sums = call("loss_total", partials=out["partials"], ctl=control())["ctl"]
    total = sums.view(np.float64)[layout.LOSS_SUM]
    assert total == pytest.approx(value[: rows * samples].sum(), rel=3e-6)
    assert sums[layout.TARGETS] == rows * samples
    found = same_for_threads(f"{name}_bwd", {"S": storage}, dx="x", acc=0, **same)["dx"]
    slope[rows * samples :] = 0
    np.testing.assert_allclose(found, 2 * slope, rtol=TOLERANCE[storage], atol=TOLERANCE[storage])


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("levels", [(0.3,), (0.1, 0.5, 0.9)])
@pytest.mark.parametrize("acc", [0, 1])
def test_quantiles_equal_their_twin(storage, weighs, levels, acc):
    rng, n, rows, samples = np.random.default_rng(0), 300, 3, 90
    q = np.array(levels, np.float32)
    x = rng.standard_normal((n, len(q))).astype(DTYPES[storage])
    t = rng.standard_normal(n).astype(np.float32)
    t[5] = x[5, 0]
    sw = rng.random(n // rows).astype(np.float32) * (np.arange(n // rows) % 4 > 0)
    ctl = control(COUNT=samples, LOSS_SCALE=8, NOMINAL=4)
    same = {"x": x, "t": t, "q": q, "ctl": ctl, "n": n, "m": len(q), "rows": rows}
    same |= {"sw": sw} if weighs else {}
    name = "quantile_w" if weighs else "quantile"
    value, slope = naive_loss.quantiles(x.astype(np.float64), t.astype(np.float64), q)
    each = np.repeat(sw if weighs else np.ones_like(sw), rows) * (np.arange(n) < samples * rows)
    out = same_for_threads(f"{name}_loss", {"S": storage}, partials=(256,), **same)
    sums = call("weighted_total", partials=out["partials"], ctl=control())["ctl"]
    found = sums.view(np.float64)[[layout.LOSS_SUM, layout.WEIGHT]]
    np.testing.assert_allclose(found, ((value * each).sum(), each.sum()), rtol=3e-6)
    assert sums[layout.TARGETS] == (each > 0).sum()
    before = rng.standard_normal(x.shape).astype(x.dtype)
    dx = before if acc else "x"
    found = same_for_threads(f"{name}_bwd", {"S": storage}, dx=dx, acc=acc, **same)["dx"]
    expected = 2 * slope * each[:, None] + (before.astype(np.float64) if acc else 0)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[storage], atol=TOLERANCE[storage])


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("acc", [0, 1])
def test_cosine_equals_its_twin(storage, weighs, acc):
    rng, n, m, rows, samples = np.random.default_rng(0), 120, 5, 2, 50
    x = rng.standard_normal((n, m)).astype(DTYPES[storage])
    t = rng.standard_normal((n, m)).astype(np.float32)
    sw = rng.random(n // rows).astype(np.float32) * (np.arange(n // rows) % 4 > 0)
    ctl = control(COUNT=samples, LOSS_SCALE=8, NOMINAL=4 * m)
    same = {"x": x, "t": t, "ctl": ctl, "n": n, "m": m, "rows": rows}
    same |= {"sw": sw} if weighs else {}
    name = "cosine_w" if weighs else "cosine"
    value, slope = naive_loss.cosine(x.astype(np.float64), t.astype(np.float64))
    each = np.repeat(sw if weighs else np.ones_like(sw), rows) * (np.arange(n) < samples * rows)
    count, total = (256, "weighted_total") if weighs else (192, "loss_total")
    out = same_for_threads(f"{name}_loss", {"S": storage}, partials=(count,), **same)
    sums = call(total, partials=out["partials"], ctl=control())["ctl"]
    assert sums.view(np.float64)[layout.LOSS_SUM] == pytest.approx(
        m * (value * each).sum(), rel=3e-6
    )
    assert sums[layout.TARGETS] == m * (each > 0).sum()
    before = rng.standard_normal(x.shape).astype(x.dtype)
    dx = before if acc else "x"
    found = same_for_threads(f"{name}_bwd", {"S": storage}, dx=dx, acc=acc, **same)["dx"]
    expected = 2 * slope * each[:, None] + (before.astype(np.float64) if acc else 0)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[storage], atol=TOLERANCE[storage])


def test_cosine_of_no_length_is_finite():
    x, t = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    same = {"x": x, "t": t, "ctl": control(COUNT=2, LOSS_SCALE=1, NOMINAL=6)}
    same |= {"n": 2, "m": 3, "rows": 1}
    out = same_for_threads("cosine_loss", {"S": "f32"}, partials=(192,), **same)
    sums = call("loss_total", partials=out["partials"], ctl=control())["ctl"]
    assert sums.view(np.float64)[layout.LOSS_SUM] == 6
    found = same_for_threads("cosine_bwd", {"S": "f32"}, dx=x.shape, acc=0, **same)["dx"]
    np.testing.assert_allclose(found, -0.5 / (1e-8 * 3**0.5), rtol=1e-6)


@pytest.mark.parametrize("before", [0, 6])
def test_several_losses_add_by_their_weights(before):
    """Two losses are added to the sums of `before` samples; the second one weighs its targets."""
    draw, count, minibatch = np.random.default_rng(0), 4, 12
    parts = [draw.random((64, 3)), draw.random((64, 4))]
    parts[0][:, 1], parts[1][:, 1] = 2.0, 3.0  # integer target counts
    parts[0][:, 2] = parts[1][:, 2] = 1.0
    w = np.array([2.0, 0.5], np.float32)
    ctl = control(COUNT=count, TARGETS=before, LOSS_SCALE=8, NOMINAL=minibatch)
    words = [layout.TERMS + layout.TERM_WORDS * k for k in range(2)]
    reals = ctl.view(np.float64)
    for at in words:
        reals[at], ctl[at + 1], ctl[at + 2], reals[at + 3] = 5.0, 7, 3, 0.25 * (at > words[0])
    sums = []
    for k, (part, at) in enumerate(zip(parts, words, strict=True)):
        old = np.array([reals[at], ctl[at + 1], ctl[at + 2], reals[at + 3]]) * bool(before)
        sums.append(old + [*part.sum(0), *([0.0] if k == 0 else [])])
        out = call(
            "term_total", partials=part.reshape(-1), w=w, ctl=ctl, own=(64,), index=k, layers=2,
            weighted=k,
        )  # fmt: skip
        ctl, own, reals = out["ctl"], out["own"], out["ctl"].view(np.float64)
        found = [reals[at], ctl[at + 1], ctl[at + 2], reals[at + 3]]
        np.testing.assert_allclose(found, sums[k])
        divisor = sums[k][3] or sums[k][1]
        scale = own.view(np.float64)[layout.LOSS_SCALE] / own.view(np.float64)[layout.NOMINAL]
        assert scale == pytest.approx(8 * w[k] * (before + count) / (minibatch * divisor))
        assert own[layout.COUNT] == count
    out = call("terms_total", w=w, ctl=ctl, sum=np.zeros(1).shape, layers=2)
    total = sum(w[k] * s[0] / (s[3] or s[1]) for k, s in enumerate(sums))
    assert out["sum"][0] == pytest.approx(total)
    assert out["ctl"][layout.TARGETS] == before + count
    assert out["ctl"].view(np.float64)[layout.LOSS_SUM] == pytest.approx(total * (before + count))


def of_samples(name, storage, weighs, acc, each, count, apart=False, **same):
    """Run the kernels of a per-sample loss; `each` is (losses, slopes) of the valid samples."""
    x, samples, rng = same["x"], len(each[0]), np.random.default_rng(1)
    w = same.pop("sw")
    if weighs:
        same["sw"] = w
    given = w[:samples].astype(np.float64) if weighs else np.ones(samples)
    same |= {"ctl": control(COUNT=samples, LOSS_SCALE=8, NOMINAL=4), "n": len(x)}
    own = f"{name}_w" if weighs else name
    partials, total = (256, "weighted_total") if weighs else (192, "loss_total")
    out = same_for_threads(f"{own}_loss", {"S": storage}, partials=(partials,), **same)
    sums = call(total, partials=out["partials"], ctl=control())["ctl"]
    found = sums.view(np.float64)[[layout.LOSS_SUM, layout.WEIGHT]]
    weights = count * given.sum() if weighs else 0
    np.testing.assert_allclose(found, (count * (each[0] * given).sum(), weights), rtol=3e-6)
    assert sums[layout.TARGETS] == count * (given > 0).sum()
    before = rng.standard_normal(x.shape).astype(x.dtype)
    for dx in (before,) if acc else (x.shape,) if apart else (x.shape, "x"):
        found = same_for_threads(f"{own}_bwd", {"S": storage}, dx=dx, acc=acc, **same)["dx"]
        expected = np.zeros(x.shape)
        slopes = each[1] if apart else each[1] * given.reshape(-1, *[1] * (x.ndim - 1))
        expected[:samples] = 2 * count * slopes
        expected += before if acc else 0
        limit = TOLERANCE[storage] * max(1, np.abs(expected).max())
        np.testing.assert_allclose(found, expected, rtol=0, atol=limit)


OF_SAMPLES = [
    pytest.mark.parametrize("storage", ["f32", "f16"]),
    pytest.mark.parametrize("weighs", [False, True]),
    pytest.mark.parametrize("acc", [0, 1]),
]


def everywhere(test):
    """Run in every storage, with and without weights, overwriting and accumulating."""
    for mark in OF_SAMPLES:
        test = mark(test)
    return test


def drawn(storage, *shape):
    """Draw logits [n, ...] and weights [n], every fourth weight 0."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(DTYPES[storage])
    return x, rng.random(shape[0]).astype(np.float32) * (np.arange(shape[0]) % 4 > 0)


@everywhere
@pytest.mark.parametrize("margin, swap", [(1.0, 0), (0.3, 1)])
def test_triplets_equal_their_twin(storage, weighs, acc, margin, swap):
    x, sw = drawn(storage, 70, 3, 5)
    each = naive_loss.triplets(x[:60].astype(np.float64), margin, swap)
    same = {"x": x, "t": np.zeros(70, np.float32), "sw": sw, "m": 5, "swap": swap, "p": margin}
    of_samples("triplet", storage, weighs, acc, each, 1, **same)


@everywhere
@pytest.mark.parametrize("temperature, every", [(0.1, 0), (0.5, 1)])
def test_pairs_equal_their_twin(storage, weighs, acc, temperature, every):
    x, sw = drawn(storage, 13, 2, 5)
    given = sw[:11].astype(np.float64) if weighs else np.ones(11)
    each = naive_loss.pairs(x[:11].astype(np.float64), given, np.float32(temperature), bool(every))
    same = {"x": x, "t": np.zeros(13, np.float32), "sw": sw, "m": 5, "every": every}
    of_samples("info_nce", storage, weighs, acc, each, 1, True, **same, p=temperature)


@everywhere
@pytest.mark.parametrize("own, c", [(0, 3), (1, 3), (1, 1)])
def test_dice_equals_its_twin(storage, weighs, acc, own, c):
    x, sw = drawn(storage, 9, c, 8)
    t = np.random.default_rng(2).integers(0, 2 if own else c, x.shape if own else (9, 8))
    t = t.astype(np.int32)
    t[:, ..., 3] = 255
    each = naive_loss.dice(x[:7].astype(np.float64), t[:7], 1.0, 255, own)
    same = {"x": x, "t": t, "sw": sw, "rows": 1, "c": c, "inner": 8, "own": own}
    of_samples("dice", storage, weighs, acc, each, 8 * c if own else 8, **same, p=1.0, ignore=255)


def test_dice_has_its_classes_on_any_axis():
    x, sw = drawn("f32", 4, 3, 6)
    t = np.random.default_rng(2).integers(0, 3, (4, 6)).astype(np.int32)
    value, slopes = naive_loss.dice(x.astype(np.float64), t, 0.5, -100, 0)
    last = {"x": np.ascontiguousarray(x.transpose(0, 2, 1)), "t": t, "sw": sw, "rows": 6, "c": 3}
    each = value, slopes.transpose(0, 2, 1)
    of_samples("dice", "f32", False, 0, each, 6, **last, inner=1, own=0, p=0.5, ignore=-100)


LABELS = [[1], [], [1, 1], [2, 1], [1, 2, 1]]


@everywhere
@pytest.mark.parametrize("first, mean", [(0, 1), (1, 0)])
def test_ctc_equals_all_its_paths(storage, weighs, acc, first, mean):
    x, sw = drawn(storage, 7, 5, 3)
    t, steps = np.full((7, first + 4), -100, np.int32), [4, 2, 3, 5, 5, 1, 0]
    values, slopes = np.zeros(5), np.zeros((5, 5, 3))
    for i, labels in enumerate(LABELS):
        t[i, first : first + len(labels)] = labels
        own = steps[i] if first else 5
        share = max(1, len(labels)) if mean else 1
        value, slope = naive_loss.ctc(x[i, :own].astype(np.float64), labels, 0)
        values[i], slopes[i, :own] = value / share, slope / share
    if first:
        t[:, 0] = steps
    same = {"x": x, "t": t, "sw": sw, "steps": 5, "c": 3, "labels": 4, "first": first}
    same |= {"blank": 0, "mean": mean, "zero": 0}
    of_samples("ctc", storage, weighs, acc, (values, slopes), first + 4, **same)


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("steps", [0, 2])
def test_ctc_of_too_little_time_is_infinite_or_nothing(zero, steps):
    x, t = drawn("f32", 1, 3, 3)[0], np.array([[steps, 1, 1]], np.int32)
    same = {"x": x, "t": t, "steps": 3, "c": 3, "labels": 2, "first": 1, "blank": 0, "n": 1}
    same |= {"mean": 1, "zero": zero, "ctl": control(COUNT=1, LOSS_SCALE=1, NOMINAL=1)}
    out = same_for_threads("ctc_loss", {"S": "f32"}, partials=(192,), **same)["partials"]
    assert out.sum() - 3 == (0 if zero else np.inf)
    dx = same_for_threads("ctc_bwd", {"S": "f32"}, dx=x.shape, acc=0, **same)["dx"]
    assert np.isfinite(dx).all() == bool(zero or not steps)
    assert not dx[0, steps:].any() and (not zero or not dx.any())


@pytest.mark.parametrize("row", [[3, 1, 3], [2, 3, -100], [4, 1, -100], [0, 5, 1]])
def test_ctc_of_a_label_that_is_no_class_or_of_too_many_steps_is_nan(row):
    x, t = drawn("f32", 1, 3, 3)[0], np.array([row], np.int32)
    same = {"x": x, "t": t, "steps": 3, "c": 3, "labels": 2, "first": 1, "blank": 0, "n": 1}
    same |= {"mean": 1, "zero": 1, "ctl": control(COUNT=1, LOSS_SCALE=1, NOMINAL=1)}
    out = same_for_threads("ctc_loss", {"S": "f32"}, partials=(192,), **same)["partials"]
    assert np.isnan(out).any()
    dx = same_for_threads("ctc_bwd", {"S": "f32"}, dx=x.shape, acc=0, **same)["dx"]
    assert np.isnan(dx).any(2).all()


@pytest.mark.parametrize("n, rows, total, targets", [(12, 2, 30.0, 8), (1, 1, 4 * 5.0, 4)])
def test_output_as_loss_counts_samples(n, rows, total, targets):
    x = np.full(n, 5.0, np.float32) if n == 1 else np.arange(12, dtype=np.float32) + 0.25
    total = float(x[:8].sum()) if n > 1 else total
    ctl, t = control(COUNT=4, LOSS_SCALE=8, NOMINAL=4), np.zeros(n, np.float32)
    same = {"x": x, "t": t, "ctl": ctl, "n": n, "rows": rows}
    out = same_for_threads("output_loss", {"S": "f32"}, partials=(192,), **same)
    sums = call("loss_total", partials=out["partials"], ctl=control())["ctl"]
    assert (sums.view(np.float64)[layout.LOSS_SUM], sums[layout.TARGETS]) == (total, targets)
    found = same_for_threads("output_bwd", {"S": "f32"}, dx="x", acc=0, **same)["dx"]
    expected = [8.0] if n == 1 else [2.0] * 8 + [0.0] * 4
    assert found.tolist() == expected
