"""Placements are valid, deterministic, and as low as promised."""

import random

import pytest

from edgetrain.compiler.arena import (
    Buffer,
    PlacementError,
    greedy,
    peak_live,
    place,
    validate,
)


def random_buffers(seed: int, count: int = 40) -> list[Buffer]:
    rng = random.Random(seed)
    found = []
    for k in range(count):
        start = rng.randrange(60)
        found.append(Buffer(k, start, start + rng.randrange(1, 20), rng.randrange(1, 3000)))
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("align", [1, 64])
def test_greedy_gives_a_valid_placement(seed, align):
    buffers = random_buffers(seed)
    offsets, height = greedy(buffers, align=align)
    assert validate(buffers, offsets, capacity=height, align=align) <= height
    assert height >= peak_live(buffers, align)


@pytest.mark.parametrize("seed", range(6))
def test_place_is_valid_and_deterministic(seed):
    buffers = random_buffers(seed)
    offsets, height = place(buffers, effort=2)
    assert validate(buffers, offsets, capacity=height, align=64) <= height
    assert (offsets, height) == place(buffers, effort=2)
    assert height <= greedy(buffers)[1]


def test_place_of_nothing_is_empty():
    assert place([]) == ([], 0)


def test_peak_live_is_half_open():
    assert peak_live([Buffer(0, 0, 2, 8), Buffer(1, 2, 3, 8)]) == 8


@pytest.mark.parametrize(
    ("offsets", "words"),
    [([0, 4], "overlap in bytes"), ([0, 9], "has 16 "), ([-8, 8], "multiple"), ([0], "1 offsets")],
)
def test_validate_refuses_a_bad_placement(offsets, words):
    buffers = [Buffer(0, 0, 2, 8), Buffer(1, 1, 3, 8)]
    with pytest.raises(PlacementError, match=words):
        validate(buffers, offsets, capacity=16, align=1)
