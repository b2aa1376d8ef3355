"""Densities of layers, and initial patterns."""

import numpy as np
import pytest

from edgetrain.formats.csr import Layer
from edgetrain.sparse import density

SHAPES = {"a": (16, 16, 3, 3), "b": (32, 16, 1, 1), "c": (64, 64, 3, 3)}


def _sizes() -> dict[str, int]:
    return {name: int(np.prod(shape)) for name, shape in SHAPES.items()}


def test_uniform_shares_have_the_density_everywhere():
    found = density.shares(SHAPES, 0.3)
    assert found == {name: round(0.3 * size) for name, size in _sizes().items()}


def test_erdos_renyi_kernel_shares_add_up_and_favour_small_layers():
    found = density.shares(SHAPES, 0.05, "erk")
    assert sum(found.values()) == pytest.approx(0.05 * sum(_sizes().values()), abs=len(SHAPES))
    part = {name: found[name] / size for name, size in _sizes().items()}
    # (16 + 16 + 3 + 3) / 2304 against (64 + 64 + 3 + 3) / 36864
    assert part["a"] / part["c"] == pytest.approx(38 / 2304 / (134 / 36864), rel=5e-3)
    assert part["b"] > part["a"] > part["c"]


def test_erdos_renyi_kernel_leaves_full_layers_dense_and_gives_the_rest_to_others():
    found = density.shares(SHAPES, 0.3, "erk")
    assert list(found) == ["c"]
    dense = _sizes()["a"] + _sizes()["b"] + found["c"]
    assert dense == pytest.approx(0.3 * sum(_sizes().values()), abs=len(SHAPES))


def test_overrides_win_and_one_stays_dense():
    found = density.shares(SHAPES, 0.5, overrides={"a": 1.0, "b": 0.1})
    assert found == {"b": 51, "c": 18432}


def test_first_positions_are_distinct_and_depend_on_seed_and_layer_alone():
    layer, whole = Layer("w", (8, 16, 3, 3), 300, 450), np.ones(1152)
    first = density.first_positions(layer, 1, 0, whole)
    assert len(np.unique(first)) == 300 and first.max() < layer.size
    assert (np.diff(first) > 0).all()
    np.testing.assert_array_equal(first, density.first_positions(layer, 1, 0, whole))
    for seed, number in ((2, 0), (1, 1)):
        other = density.first_positions(layer, seed, number, whole)
        shared = len(np.intersect1d(first, other))
        assert 40 < shared < 120  # independent draws share 300^2 / 1152 = 78


def test_first_positions_are_those_of_every_machine():
    layer = Layer("w", (2, 2, 3, 3), 5, 7)
    assert density.first_positions(layer, 0, 0, np.ones(36)).tolist() == [15, 17, 21, 25, 30]


def test_first_positions_are_nonzeros_while_there_are_any():
    layer, weight = Layer("w", (8, 16, 3, 3), 300, 450), np.zeros(1152)
    weight[100:300] = 1.0
    first = density.first_positions(layer, 1, 0, weight)
    assert set(range(100, 300)) < set(first.tolist()) and len(np.unique(first)) == 300
    weight[:] = 1.0
    weight[::2] = 0.0
    assert (density.first_positions(layer, 1, 0, weight) % 2 == 1).all()


def test_a_layer_may_grow_to_one_and_a_half_times_its_share_but_not_beyond_its_size():
    assert [density.cap(10, 100), density.cap(90, 100)] == [15, 100]
