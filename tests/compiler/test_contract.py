"""The budget contract on whole networks, through the Python API."""

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.plan.frontier import find_frontier
from edgetrain.errors import BudgetError
from tests.zoo_files import zoo_file

pytestmark = pytest.mark.slow

OPTIONS = {
    "resnet18": {"minibatch": 32, "optimizer": "adamw"},
    "wrn28_2": {"minibatch": 100, "microbatch": 10, "precision": "fp16"},
}


@pytest.fixture(scope="module", params=sorted(OPTIONS))
def case(request):
    """Return (model, options, plan without a budget)."""
    model, options = et.load_onnx(zoo_file(request.param, "full")), OPTIONS[request.param]
    return model, options, et.plan(model, **options)


def test_plan_takes_no_more_bytes_and_no_less_time_as_the_budget_falls(case):
    model, options, fastest = case
    low, high = fastest["min_budget_nbytes"], fastest["arena_nbytes"]
    plans = [et.plan(model, budget=int(budget), **options) for budget in np.linspace(high, low, 20)]
    nbytes = [plan["arena_nbytes"] for plan in plans]
    times = [plan["relative_time"] for plan in plans]
    assert nbytes == sorted(nbytes, reverse=True)
    assert times == sorted(times)
    assert all(p["arena_nbytes"] <= p["budget_nbytes"] for p in plans)
    assert (nbytes[0], nbytes[-1], times[0]) == (high, low, 1.0)


def test_plan_refuses_one_byte_less_than_the_least(case):
    model, options, fastest = case
    least = fastest["min_budget_nbytes"]
    assert et.plan(model, budget=least, **options)["arena_nbytes"] == least
    with pytest.raises(BudgetError) as caught:
        et.plan(model, budget=least - 1, **options)
    assert caught.value.min_budget_nbytes == least


@pytest.mark.parametrize("name", ["densenet", "resnet50", "wrn28_2"])
def test_every_plan_is_placed_within_one_per_cent_of_its_lower_bound(name):
    options = make_options(minibatch=32, microbatch=8, optimizer="sgd")
    front = find_frontier(Compilation(et.load_onnx(zoo_file(name, "full")), options))
    above = [p.arena_nbytes / p.candidate.arena_nbytes(p.simulation.peak_nbytes) for p in front]
    assert len(front) > 10 and max(above) <= 1.01
