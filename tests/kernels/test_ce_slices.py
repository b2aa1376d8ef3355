"""Cross-entropy computed by slices of the classes, compared with a naive twin over all classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from . import naive_loss
from .harness import DTYPES, call, control, same_for_threads

TOLERANCE = {"f32": 2e-6, "f16": 2.0**-10}


def sliced(x, t, cw, smoothing, width, storage="f32"):
    """Return the statistics after all slices, and the five best classes of each row."""
    rows, n = x.shape
    stat, best = np.full((rows, 5), np.nan), np.full((rows, 5), 7, np.float32)
    scores = np.full((rows, 5), np.nan, np.float32)
    for start in range(0, n, width):
        part = np.ascontiguousarray(x[:, start : start + width])
        weights = None if cw is None else cw[: start + part.shape[1]]
        found = same_for_threads(
            "ce_slice",
            {"S": storage},
            x=part,
            t=t,
            cw=weights,
            stat=stat,
            best=best,
            scores=scores,
            rows=rows,
            n=part.shape[1],
            start=start,
            smoothing=smoothing,
        )
        stat, best, scores = found["stat"], found["best"], found["scores"]
    return stat, best


@given(
    batch=st.integers(1, 4),
    each=st.integers(1, 4),
    n=st.one_of(st.integers(1, 40), st.sampled_from((256, 257, 600))),
    width=st.sampled_from((1, 7, 64, 256, 300)),
    smoothing=st.sampled_from((0.0, 0.1)),
    storage=st.sampled_from(("f32", "f16")),
    masked=st.integers(0, 2),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_slices_equal_naive_twin(batch, each, n, width, smoothing, storage, masked, weighted, seed):
    rng = np.random.default_rng(seed)
    rows, width = batch * each, max(width, n // 9)
    x = (rng.standard_normal((rows, n)) * 4).astype(DTYPES[storage])
    t = rng.integers(0, n, rows).astype(np.int32)
    t[rng.random(rows) < 0.2] = -100
    cw = rng.uniform(0.5, 2, n).astype(np.float32) if weighted else None
    sw = rng.uniform(0.5, 2, batch).astype(np.float32) if weighted else None
    stat, best = sliced(x, t, cw, smoothing, width, storage)
    ones = np.ones(n, np.float32)
    expected = naive_loss.slices(x, t, ones if cw is None else cw, smoothing)
    np.testing.assert_allclose(stat, expected, rtol=3e-6, atol=2e-5)
    np.testing.assert_array_equal(best, naive_loss.best(x, 5))

    samples = max(0, batch - masked)
    ctl = control(COUNT=samples, LOSS_SCALE=8, NOMINAL=4)
    shape = {"rows": rows, "batch": batch, "each": each, "smoothing": smoothing, "ignore": -100}
    out = same_for_threads(
        "ce_slices_loss",
        t=t,
        stat=stat,
        cw=cw,
        sw=sw,
        ctl=ctl,
        n=n,
        weighted=int(weighted),
        partials=(192 + 64 * weighted,),
        **shape,
    )
    sums = out["partials"].reshape(64, -1).sum(0)
    weights = np.ones(batch) if sw is None else sw.astype(np.float64)
    losses, counted, correct, gradient = 0.0, 0, 0, np.zeros((rows, n))
    for row in range(rows):  # each position on its own, with its sample's weight
        sample = row // each
        one = (x[row][None, :, None], t[row].reshape(1, 1))
        usual = (np.float32(smoothing), -100, int(sample < samples), 1)
        loss, _, hit, slope = naive_loss.weighted_cross_entropy(
            *one, ones if cw is None else cw, *usual
        )
        losses += weights[sample] * loss
        counted += int(sample < samples and t[row] >= 0)
        correct += hit
        gradient[row] = 2 * weights[sample] * slope[0, :, 0]
    np.testing.assert_allclose(sums[0], losses, rtol=4e-6, atol=4e-6)
    assert (sums[1], sums[2]) == (counted, correct)

    for start in range(0, n, width):
        part = np.ascontiguousarray(x[:, start : start + width])
        found = same_for_threads(
            "ce_slice_bwd",
            {"S": storage},
            x=part,
            t=t,
            stat=stat,
            cw=cw,
            sw=sw,
            ctl=ctl,
            n=part.shape[1],
            start=start,
            classes=n,
            before=0,
            **shape,
        )["x"]
        expected = gradient[:, start : start + width]
        np.testing.assert_allclose(found, expected, TOLERANCE[storage] * 4, 1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_slices_pass_non_finite_logits_on(rng, bad):
    x = rng.standard_normal((3, 20)).astype(np.float32)
    x[1, 4] = bad
    stat, _ = sliced(x, np.zeros(3, np.int32), None, 0.0, 8)
    np.testing.assert_array_equal(np.isfinite(stat[:, 1]), [True, False, True])


def test_a_slice_of_no_chance_changes_nothing(rng):
    x = rng.standard_normal((2, 24)).astype(np.float32)
    x[:, :8] = x[:, 16:] = -np.inf
    stat, _ = sliced(x, np.full(2, 9, np.int32), None, 0.0, 8)
    expected = naive_loss.slices(x, np.full(2, 9), np.ones(24), 0.0)
    np.testing.assert_allclose(stat, expected, rtol=1e-6)


def test_positions_of_time_before_batch_know_their_sample():
    t, stat = np.zeros(6, np.int32), np.tile(np.array([0.0, 1.0, -1.0, 0.0, 0.0]), (6, 1))
    ctl = control(COUNT=2, LOSS_SCALE=1, NOMINAL=1)
    sizes = {"rows": 6, "n": 4, "batch": 3, "each": 1, "smoothing": 0.0, "ignore": -100}
    out = call("ce_slices_loss", t=t, stat=stat, ctl=ctl, weighted=0, partials=(192,), **sizes)
    assert out["partials"].reshape(64, 3).sum(0).tolist() == [4.0, 4.0, 4.0]
