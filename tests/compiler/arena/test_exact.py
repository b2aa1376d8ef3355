"""Branch and bound against enumeration, and on instances where greedy placement fails."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from benchmarks.place import load_buffers
from edgetrain.compiler.arena import Buffer, greedy, peak_live, place, validate
from edgetrain.compiler.arena.branch_and_bound import branch_and_bound
from edgetrain.compiler.arena.greedy import place_in_order
from edgetrain.compiler.arena.lives import lives

from .test_place import random_buffers

SHARED = Path(__file__).resolve().parents[4] / "shared" / "planner" / "arena"


def columns(buffers: list[Buffer]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(
        np.array([getattr(b, key) for b in buffers]) for key in ("start", "stop", "nbytes")
    )


def least_height(buffers: list[Buffer]) -> int:
    """Return the best height of all greedy orders; one of them is optimal."""
    start, stop, size = columns(buffers)
    offset, pairs = np.zeros(len(buffers), np.int64), lives(start, stop)
    return min(
        place_in_order(pairs, size, np.array(order), offset, False)
        for order in itertools.permutations(range(len(buffers)))
    )


@pytest.mark.parametrize("seed", range(8))
def test_branch_and_bound_finds_the_least_height_and_no_less(seed):
    buffers = [b for b in random_buffers(seed, 40) if b.start < 18][:7]
    best = least_height(buffers)
    offsets = branch_and_bound(*columns(buffers), best, 50)
    assert offsets is not None
    assert validate(buffers, offsets.tolist(), capacity=best) == best
    assert branch_and_bound(*columns(buffers), best - 1, 50) is None


def tiling(seed: int) -> list[Buffer]:
    """Tile a full rectangle of 24 steps by 1000 bytes: every byte is live at every step."""
    rng = np.random.default_rng(seed)
    buffers: list[Buffer] = []

    def tile(left: int, right: int, low: int, high: int) -> None:
        across = right - left > 2 and (high - low < 200 or rng.random() < 0.5)
        if (right - left) * (high - low) < 600 or (not across and high - low < 40):
            buffers.append(Buffer(len(buffers), left, right, high - low))
        elif across:
            middle = int(rng.integers(left + 1, right))
            tile(left, middle, low, high)
            tile(middle, right, low, high)
        else:
            middle = int(rng.integers(low + 10, high - 10))
            tile(left, right, low, middle)
            tile(left, right, middle, high)

    tile(0, 24, 0, 1000)
    return buffers


@pytest.mark.parametrize("seed", range(4))
def test_place_reaches_a_capacity_that_greedy_misses(seed):
    buffers = tiling(seed)
    assert peak_live(buffers) == 1000
    offsets, height = place(buffers, capacity=1000, align=1, effort=400)
    assert height == 1000
    assert validate(buffers, offsets, capacity=1000) == 1000
    assert greedy(buffers, align=1)[1] >= 1000


@pytest.mark.shared
@pytest.mark.parametrize("name", ["A", "C", "E", "G", "I", "K"])
def test_place_reaches_the_capacity_of_hard_public_instances(name):
    path = SHARED / f"{name}.1048576.csv"
    if not path.is_file():
        pytest.skip(f"needs the instances in {SHARED}")
    buffers = load_buffers(path)
    offsets, _ = place(buffers, capacity=1048576, align=1, effort=2000)
    assert validate(buffers, offsets, capacity=1048576) <= 1048576


@pytest.mark.shared
def test_place_reaches_the_lower_bound_of_a_real_training_graph():
    path = SHARED / "somas_resnet50.csv"
    if not path.is_file():
        pytest.skip(f"needs the instances in {SHARED}")
    buffers = load_buffers(path)
    assert place(buffers, align=1, effort=2000)[1] == peak_live(buffers)
