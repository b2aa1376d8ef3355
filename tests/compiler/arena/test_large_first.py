"""Placing large buffers exactly, then small ones around them."""

import numpy as np

from edgetrain.compiler.arena import Buffer, greedy, peak_live, place, validate
from edgetrain.compiler.arena.large_first import large_first
from edgetrain.compiler.arena.lives import lives

from .test_exact import columns, tiling


def _lives(buffers: list[Buffer]):
    start, stop, size = columns(buffers)
    return lives(start, stop), size


def training_like(seed: int) -> list[Buffer]:
    """A full tiling of wide maps, each with six small vectors live at the same time."""
    rng = np.random.default_rng(seed)
    maps = [Buffer(b.id, b.start, b.stop, 1024 * b.nbytes) for b in tiling(seed)]
    small = [
        Buffer(len(maps) + 6 * k + j, b.start, min(b.stop, b.start + 2), int(rng.integers(1, 999)))
        for k, b in enumerate(maps)
        for j in range(6)
    ]
    return maps + small


def test_coarse_comes_within_half_a_percent_where_greedy_does_not():
    buffers = training_like(2)
    bound = peak_live(buffers)
    height = greedy(buffers, align=1)[1]
    assert height > 1.005 * bound
    found = large_first(*_lives(buffers), bound, height, 20)
    assert found is not None
    offset, reached = found
    assert validate(buffers, offset.tolist(), capacity=reached) == reached
    assert reached <= 1.005 * bound


def test_coarse_gives_nothing_where_the_height_is_reached_already():
    buffers = [Buffer(0, 0, 2, 8), Buffer(1, 1, 3, 8)]
    assert large_first(*_lives(buffers), 16, 16, 1) is None


def test_place_comes_within_a_percent_of_the_bound_of_a_training_like_problem():
    buffers = training_like(3)
    offsets, height = place(buffers)
    assert validate(buffers, offsets, align=64) <= height
    assert height <= 1.01 * peak_live(buffers, 64)
