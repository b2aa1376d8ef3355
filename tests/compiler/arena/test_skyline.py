"""The skyline placer on thousands of buffers with a known minimum height."""

import numpy as np
import pytest

from benchmarks.placements import tiling, training
from edgetrain.compiler.arena import (
    DEFAULT_EFFORT,
    Buffer,
    greedy,
    peak_live,
    place,
    validate,
)
from edgetrain.compiler.arena.skyline import skyline


def buffers_of(table: np.ndarray) -> list[Buffer]:
    return [Buffer(k, *row) for k, row in enumerate(table.tolist())]


@pytest.mark.parametrize("kept", [0.5, 1.0])
def test_problems_have_the_height_they_say(kept):
    """Some step uses every byte, so no arena is lower; cut from a rectangle, the buffers fit it."""
    table, height = tiling(700, 3, kept)
    assert peak_live(table) == height
    if kept == 1.0:
        lives = table[:, 1] - table[:, 0]
        assert (lives * table[:, 2]).sum() == height * table[:, 1].max()


@pytest.mark.parametrize("seed", range(3))
def test_skyline_is_valid_deterministic_and_better_with_more_work(seed):
    table, height = tiling(700, seed, 0.6)
    columns = np.ascontiguousarray(table.T)
    found = [skyline(*columns, height, work) for work in (1, 40_000_000)]
    for offsets, reached in found:
        assert validate(buffers_of(table), offsets.tolist()) == reached >= height
    again = skyline(*columns, height, 40_000_000)
    assert (again[0] == found[1][0]).all() and again[1] == found[1][1]
    assert found[1][1] < found[0][1] or found[0][1] == height


def test_skyline_ends_at_its_goal():
    table = np.array([[0, 2, 64], [0, 1, 64], [1, 2, 64]])
    offsets, height = skyline(*np.ascontiguousarray(table.T), 128, 10**9)
    assert height == 128
    assert validate(buffers_of(table), offsets.tolist()) == 128


def test_thousands_of_buffers_of_a_training_step_reach_their_bound():
    table, height = training(600, 1)
    assert len(table) > 5000 and peak_live(table) == height
    assert place(table, align=1)[1] == height


THOROUGH = 16 * DEFAULT_EFFORT


@pytest.mark.parametrize(
    "count, kept, above", [(5000, 0.5, 0.0), (5000, 0.7, 0.01), (20_000, 0.5, 0.0)]
)
def test_thousands_of_buffers_end_at_or_near_the_height_they_were_cut_from(count, kept, above):
    """With half of the buffers kept, the exact height; with 70 %, at most 1 % more."""
    table, height = tiling(count, 1, kept)
    offsets, reached = place(table, align=1, effort=THOROUGH)
    assert peak_live(table) == height
    assert reached <= height * (1 + above)
    assert reached < greedy(buffers_of(table), align=1)[1]
    if count == 5000:  # validation is quadratic in the buffers
        assert validate(buffers_of(table), offsets) == reached
