"""The shuffled order: a bijection for every n, different each epoch, and stable across versions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.data.order.hashing import key_of, mix, random_bits
from edgetrain.data.order.permute import permuted

FAST = settings(max_examples=60, deadline=None, derandomize=True)


def order(n, seed=0, epoch=0):
    return permuted(seed, epoch, np.arange(n), n)


def test_permuted_is_a_bijection_for_every_small_n():
    for n in range(1, 300):
        np.testing.assert_array_equal(np.sort(order(n, seed=n)), np.arange(n))


@FAST
@given(n=st.integers(1, 20_000), seed=st.integers(-(2**63), 2**64), epoch=st.integers(0, 10**6))
def test_permuted_is_a_bijection(n, seed, epoch):
    np.testing.assert_array_equal(np.sort(order(n, seed, epoch)), np.arange(n))


def test_permuted_is_stable():
    """Saved cursors must keep their meaning."""
    assert order(10).tolist() == [0, 2, 1, 8, 7, 4, 5, 3, 6, 9]
    assert permuted(7, 3, np.array([0, 1, 59_999]), 60_000).tolist() == [45806, 26600, 52214]
    assert permuted(-1, 0, np.array([[0], [2**62 - 1]]), 2**62).tolist() == [
        [451301469445996415],
        [1565805433781153566],
    ]


def test_permuted_differs_by_seed_and_epoch():
    orders = [tuple(order(100, seed, epoch)) for seed in range(3) for epoch in range(3)]
    assert len(set(orders)) == 9


def test_permuted_does_not_depend_on_how_positions_are_asked_for():
    whole = order(1000, 5, 2)
    parts = [permuted(5, 2, np.arange(k, k + 10), 1000) for k in range(0, 1000, 10)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("n", [2, 3, 5, 10, 64, 100])
def test_permuted_brings_every_sample_to_the_front_equally_often(n):
    trials = 200 * n
    first = np.array([permuted(0, e, np.array([0]), n)[0] for e in range(min(trials, 4000))])
    counts = np.bincount(first, minlength=n)
    expected = len(first) / n
    chi2 = ((counts - expected) ** 2 / expected).sum()
    # mean n - 1, deviation sqrt(2 (n - 1)): five deviations are far out for a fixed seed
    assert chi2 < (n - 1) + 5 * np.sqrt(2 * (n - 1))


def test_permuted_spreads_neighbours():
    places = order(10_000).astype(float)
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(places, np.arange(10_000))[0, 1]) < 0.05


def test_mix_is_splitmix64():
    """First outputs of SplitMix64 seeded with 0, from the reference implementation."""
    states = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [hex(v) for v in mix(states).tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_random_bits_are_balanced():
    bits = random_bits(key_of(1, 2), np.arange(20_000))
    ones = [(bits >> np.uint64(k) & np.uint64(1)).mean() for k in range(64)]
    assert np.abs(np.array(ones) - 0.5).max() < 0.02  # five deviations are 0.018
    assert key_of(1, 2) != key_of(2, 1)
