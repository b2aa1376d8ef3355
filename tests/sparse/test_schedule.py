"""When rewirings happen, and the report's hyperparameters."""

import json
from dataclasses import replace

import numpy as np
import pytest

from edgetrain.errors import ProgramError, UsageError
from edgetrain.formats.csr import POOL, Layer
from edgetrain.ir import Value
from edgetrain.sparse import DSR, SET, make_rewiring, rewiring_of
from edgetrain.sparse.dsr import FRACTION
from tests.twins import due

DENSITIES = (0.3, 0.2, 0.1, 0.07, 0.9)


def _due(method, total: int) -> list[int]:
    return [step for step in range(1, total + 1) if due(method, step, total)]


def test_dsr_rewires_by_the_reports_table_5_for_both_models():
    wrn = _due(DSR(), 100_000)  # 200 epochs of 500 updates
    assert wrn[:125] == list(range(100, 12_501, 100))
    assert [s for s in wrn if 12_500 < s <= 40_000] == list(range(12_600, 40_001, 200))
    assert [s for s in wrn if 40_000 < s <= 70_000] == list(range(40_400, 70_001, 400))
    assert [s for s in wrn if s > 70_000] == list(range(70_400, 95_001, 800))
    transformer = _due(DSR(), 50_000)
    assert transformer[61:64] == [6200, 6400, 6600] and transformer[-1] <= 47_500


def test_frequency_divides_the_intervals():
    assert _due(DSR(frequency=0.5), 8000)[:6] == [200, 400, 600, 800, 1000, 1200]
    assert _due(DSR(frequency=4), 8000)[:3] == [25, 50, 75]


def test_short_runs_rewire_too_at_shorter_intervals():
    assert _due(DSR(frequency=0.5), 500) == [25, 50, 100, 150, 200, 300]
    assert _due(DSR(), 100) == [20, 40, 60]
    assert _due(DSR(periods=((1.0, 3),)), 10) == [3, 6, 9]


def test_dsr_takes_the_multipliers_of_the_nearest_density_of_table_8():
    shares = {d: [Layer("w", (100, 100), round(d * 10_000), 10_000)] for d in DENSITIES}
    found = {d: DSR().fitted(layers, adaptive=False) for d, layers in shares.items()}
    facts = {d: (round(m.fraction / FRACTION, 6), m.long_frequency) for d, m in found.items()}
    assert facts == {0.3: (2, 0.5), 0.2: (2, 1), 0.1: (1, 0.5), 0.07: (1, 0.25), 0.9: (4, 0.5)}


def test_dsr_leaves_what_was_given_and_aims_at_three_tenths_of_few_nonzeros():
    layers = [Layer("w", (100, 100), 1000, 1500)]
    found = DSR(fraction=0.5, frequency=3.0).fitted(layers, adaptive=True)
    assert (found.fraction, found.frequency, found.keep_state) == (0.5, 3.0, True)
    for density in (0.05, 0.01, 0.001):
        few = [Layer("w", (1000, 1000), round(density * 1e6), 10**6)]
        method = DSR().fitted(few, adaptive=False)
        share = next(c for c in method.calls(few, []) if c.kernel == "csr_share")
        assert share.args["target"] == round(min(0.01377866, 0.3 * density) * 1e6)


def _resets(method, layers) -> list[int]:
    """For each tensor of optimizer state, the number of steps from which it is reset."""
    state = [Value(f"{POOL}.momentum", (1500,), "f32", "state")]
    return [c.args["least"] for c in method.calls(layers, state) if c.kernel == "csr_reset"]


def test_state_is_reset_in_long_runs_but_for_optimizers_that_divide_by_moments():
    layers = [Layer("w", (100, 100), 1000, 1500)]
    for method in (DSR(), SET()):
        sgd, adam = (method.fitted(layers, adaptive=adaptive) for adaptive in (False, True))
        assert (_resets(sgd, layers), _resets(adam, layers)) == ([4000], [])
        for choice, expected in ((True, []), (False, [0])):
            asked = replace(method, keep_state=choice).fitted(layers, adaptive=True)
            assert _resets(asked, layers) == expected


def test_the_report_s_frequency_is_that_of_long_runs():
    layers = [Layer("w", (100, 100), 1000, 1500)]  # density 0.1: half as often
    method = DSR().fitted(layers, adaptive=False)
    assert _due(method, 1500)[:4] == [38, 76, 114, 152]
    assert _due(method, 100_000)[:3] == [200, 400, 600]
    asked = DSR(long_frequency=1.0).fitted(layers, adaptive=False)
    assert _due(asked, 100_000)[:3] == [100, 200, 300]
    own = DSR(periods=((1.0, 3),)).fitted(layers, adaptive=False)
    assert _due(own, 10) == [3, 6, 9]


def test_dsr_aims_at_20000_of_the_wide_resnets_weights():
    layers = [Layer("w", (1451520, 1), 145_152, 217_728)]
    share = next(c for c in DSR().calls(layers, []) if c.kernel == "csr_share")
    assert share.args["target"] == 20_000


def test_dsr_starts_where_the_first_weights_yield_what_it_aims_to_drop():
    layers = [Layer("w", (100, 100), 1000, 1500)]
    weights = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    first = DSR(fraction=0.02).first_threshold(weights, layers)
    assert np.count_nonzero(np.abs(weights) < first) == 200
    assert DSR(threshold=0.25).first_threshold(weights, layers) == 0.25
    assert SET().first_threshold(weights, layers) == 0.0


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [0.5], [0.0, 1e-30], [1.0, 1.0, 1.0]])
def test_dsr_starts_above_zero_whatever_the_weights(weights):
    layers = [Layer("w", (100, 100), 1000, 1500)]
    assert DSR().first_threshold(np.array(weights, np.float32), layers) > 0


@pytest.mark.parametrize("method", [DSR(frequency=2.0, periods=((1.0, 5),)), SET(fraction=0.1)])
def test_a_method_survives_the_recipe_of_a_program(method):
    recipe = json.loads(json.dumps({"rewiring": method.to_json(), "sparse_layers": [[]]}))
    assert rewiring_of(recipe) == method


def test_a_recipe_without_sparse_layers_has_no_rewiring():
    assert rewiring_of({"rewiring": DSR().to_json(), "sparse_layers": []}) is None
    assert rewiring_of({}) is None


def test_a_damaged_recipe_is_refused():
    for fields in ({"name": "other"}, {"name": "dsr", "wrong": 1}, {"name": "set", "fraction": 9}):
        with pytest.raises(ProgramError, match="rewiring"):
            rewiring_of({"rewiring": fields, "sparse_layers": [[]]})


def test_a_method_s_numbers_may_be_given_as_text():
    found = make_rewiring("dsr:frequency=2,keep_state=true,threshold=1e-3")
    assert found == DSR(frequency=2, keep_state=True, threshold=1e-3)
    assert make_rewiring("set:fraction=0.1") == SET(fraction=0.1)


@pytest.mark.parametrize(
    "text",
    ["dsr:", "dsr:x=1", "dsr:frequency", "dsr:frequency=", "dsr:frequency=fast", "dsr:periods=[]",
     "dsr:frequency=0", "set:fraction=2", "dsr:frequency=1e999", "dsr:frequency=NaN", "none:a=1",
     "set:fraction=0.1,", "set:keep_state=2"],
)  # fmt: skip
def test_wrong_numbers_of_a_method_are_refused(text):
    with pytest.raises(UsageError, match="rewiring"):
        make_rewiring(text)


def test_wrong_methods_are_refused():
    assert make_rewiring("none") is None
    with pytest.raises(UsageError, match="expected one of none, dsr, set"):
        make_rewiring("other")
    with pytest.raises(UsageError, match="frequency"):
        DSR(frequency=0)
    with pytest.raises(UsageError, match="fraction"):
        SET(fraction=1.0)
    with pytest.raises(UsageError, match="fraction"):
        DSR(fraction=0.0)
    with pytest.raises(UsageError, match="threshold"):
        DSR(threshold=0.0)


@pytest.mark.parametrize(
    "options",
    [{"periods": ((1.0, float("nan")),)}, {"periods": ((1.0, float("inf")),)}, {"periods": "x"},
     {"periods": ((float("nan"), 5),)}, {"periods": ((0.5, 0),)}, {"periods": 3},
     {"frequency": "often"}, {"frequency": 1e-320}, {"frequency": float("inf")},
     {"fraction": "half"}, {"keep_state": "yes"}, {"keep_state": 2}],
)  # fmt: skip
def test_wrong_types_of_numbers_are_refused(options):
    for method in (DSR, SET):
        with pytest.raises(UsageError, match="rewiring"):
            method(**options)
    for wrong in ({"threshold": "a"}, {"threshold": float("inf")}, {"tolerance": float("nan")}):
        with pytest.raises(UsageError, match="rewiring dsr"):
            DSR(**wrong)
