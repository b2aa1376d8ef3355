"""Dropout: the mask equals its numpy twin, its share is right, the gradient uses the same mask."""

import numpy as np
import pytest

from . import naive_rng
from .harness import DTYPES, control, same_for_threads

WORDS = {"SEED": 99, "STEP": 4, "MICROBATCH": 2}


def _mask(n, key, p):
    bits = naive_rng.hash32(naive_rng.stream(99, key, 4, 2), np.arange(n))
    return (bits >> 8).astype(np.float32) / np.float32(2**24) >= np.float32(p)


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 64, 1001])
def test_dropout_and_gradient_equal_naive(rng, n, p, storage):
    x, dx = (rng.normal(size=n).astype(DTYPES[storage]) for _ in range(2))
    call = {"ctl": control(**WORDS), "key": 7, "n": n, "p": p}
    keep = _mask(n, 7, p)
    with np.errstate(divide="ignore"):
        scale = np.float32(1) / (np.float32(1) - np.float32(p))
    expected = np.where(keep, x.astype(np.float32) * (scale if keep.any() else 0), 0)
    y = same_for_threads("dropout", {"S": storage}, x=x, y=(n,), **call)["y"]
    np.testing.assert_array_equal(y, expected.astype(x.dtype))
    for acc in (0, 1):
        found = same_for_threads("dropout_bwd", {"S": storage}, dy=x, dx=dx, acc=acc, **call)
        total = expected.astype(np.float32) + np.float32(acc) * dx.astype(np.float32)
        np.testing.assert_array_equal(found["dx"], total.astype(x.dtype))


def test_dropout_keeps_the_share_it_is_asked_to():
    x = np.ones(200_000, np.float32)
    call = {"ctl": control(**WORDS), "key": 1, "n": x.size, "p": 0.3}
    y = same_for_threads("dropout", {"S": "f32"}, x=x, y=x.shape, **call)["y"]
    # Five standard deviations of the share in 200000 draws.
    assert abs((y > 0).mean() - 0.7) < 5 * np.sqrt(0.3 * 0.7 / x.size)


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize(("shape", "start", "stop"), [((1, 9, 40), 2, 6), ((5, 7, 3), 6, 7)])
def test_dropout_part_draws_what_the_whole_draws(rng, storage, shape, start, stop):
    """The part is [outer, start:stop, inner] of an array."""
    outer, steps, inner = shape
    whole = rng.normal(size=shape).astype(DTYPES[storage])
    call = {"ctl": control(**WORDS), "key": 7, "p": 0.4}
    y = same_for_threads("dropout", {"S": storage}, x=whole, y=shape, n=whole.size, **call)["y"]
    expected = np.asarray(y).reshape(shape)[:, start:stop].ravel()
    x = np.ascontiguousarray(whole[:, start:stop]).ravel()
    run = {"span": (stop - start) * inner, "stride": steps * inner, "skip": start * inner}
    call |= run | {"n": x.size}
    y = same_for_threads("dropout_part", {"S": storage}, x=x, y=(x.size,), **call)["y"]
    np.testing.assert_array_equal(y, expected)
    dx = np.zeros_like(x)
    call |= {"dy": x, "dx": dx, "acc": 0}
    found = same_for_threads("dropout_part_bwd", {"S": storage}, **call)["dx"]
    np.testing.assert_array_equal(found, expected)
