"""The report's numbers; and the last step, share and weight on each side of a comparison."""

from dataclasses import asdict

import numpy as np
import pytest

from edgetrain.errors import UsageError
from edgetrain.formats.csr import Layer
from edgetrain.sparse import DSR, SET
from edgetrain.sparse.density import cap, shares
from edgetrain.sparse.rewiring import PERIODS
from tests.twins import due


def _due(method, total: int) -> list[int]:
    return [step for step in range(1, total + 1) if due(method, step, total)]


def test_methods_begin_with_these_numbers():
    common = {"frequency": None, "periods": PERIODS, "keep_state": None, "long_frequency": None}
    dsr = {"fraction": None, "threshold": None, "factor": 2.0, "tolerance": 0.1}
    assert (asdict(DSR()), asdict(SET())) == (common | dsr, common | {"fraction": 0.3})


def test_the_numbers_reach_the_kernel():
    layers = [Layer("w", (10, 10), 30, 45)]
    (share,) = (c for c in DSR(fraction=0.05).calls(layers, []) if c.kernel == "csr_share")
    numbers = {k: share.args[k] for k in ("target", "tolerance", "factor", "own")}
    assert numbers == {"target": 5, "tolerance": 0.1, "factor": 2.0, "own": 0}


def test_the_last_rewiring_of_a_short_run_is_at_three_quarters_of_it():
    assert _due(DSR(), 80) == [20, 40, 60]


def test_a_run_of_4000_steps_is_long():
    assert _due(DSR(), 4000)[-3:] == [2400, 2800, 3200]
    assert _due(DSR(), 3999)[-1] < 0.75 * 3999


def test_own_periods_keep_their_frequency():
    layers = [Layer("w", (10, 10), 50, 75)]
    fitted = [DSR(**own).fitted(layers, False) for own in ({}, {"periods": ((1.0, 3),)})]
    assert [method.long_frequency for method in fitted] == [0.5, 1.0]


@pytest.mark.parametrize(("fraction", "threshold"), [(0.03, 4.0), (0.5, 4.0), (0.02, 3.0)])
def test_the_first_threshold_drops_the_aim_and_at_most_three_tenths(fraction, threshold):
    """10 of 100 elements are nonzero, 1 to 10; the target fraction is below the threshold."""
    layers, weights = [Layer("w", (10, 10), 10, 15)], np.arange(1, 11, dtype=np.float32)
    assert DSR(fraction=fraction).first_threshold(-weights, layers) == threshold


@pytest.mark.parametrize(
    "wrong", [{"factor": 0.5}, {"tolerance": -0.1}, {"fraction": 1.0}, {"threshold": 0.0}], ids=str
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match="rewiring dsr"):
        DSR(**wrong)


def test_shares_have_one_nonzero_at_least_and_full_weights_are_dense():
    assert shares({"w": (10, 10)}, 0.001) == {"w": 1}
    assert shares({"w": (2, 2), "v": (10, 10)}, 0.9, overrides={"w": 1.0}) == {"v": 90}


def test_layers_grow_by_half_and_never_beyond_their_size():
    assert [cap(10, 100), cap(67, 100), cap(66, 100), cap(1, 1)] == [15, 100, 99, 1]
