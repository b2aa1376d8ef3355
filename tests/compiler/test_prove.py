"""`plan --prove`: its bounds hold, and failures to prove are reported in one line."""

import sys

import pytest

from edgetrain.api import make_options
from edgetrain.compiler import plan_model
from edgetrain.compiler.advice.prove import prove
from edgetrain.compiler.remat import bound
from edgetrain.errors import UsageError

from .nets import conv_bn_relu_conv

pytestmark = pytest.mark.usefixtures("quick_planner")


@pytest.fixture(scope="module")
def planned():
    options = make_options(minibatch=8, microbatch=8)
    _, front, _ = plan_model(conv_bn_relu_conv(), options)
    return front


def test_prove_bounds_what_was_found(planned) -> None:
    for plan in planned:
        proof = prove(planned, plan, plan.arena_nbytes)
        assert proof.complete
        assert proof.least_nbytes <= proof.found_nbytes == planned[0].arena_nbytes
        assert proof.least_extra <= proof.found_extra + 1e-9
        assert 0 <= proof.gap_nbytes < 0.2 and 0 <= proof.gap_time < 0.2
    assert proof.found_extra == proof.least_extra == 0  # the last plan recomputes nothing


def test_prove_prints_bounds_and_gaps(planned) -> None:
    text = "\n".join(prove(planned, planned[0], None).lines())
    assert f"{planned[0].arena_nbytes:,}" in text and text.count("gap") == 2


def test_prove_refuses_a_large_graph(planned, monkeypatch) -> None:
    monkeypatch.setattr(bound, "MOST_STEPS", 3)
    with pytest.raises(UsageError, match="at most 3. Leave --prove out"):
        prove(planned, planned[0], None)


def test_prove_names_scipy_where_it_is_missing(planned, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(UsageError, match="pip install scipy"):
        prove(planned, planned[0], None)
