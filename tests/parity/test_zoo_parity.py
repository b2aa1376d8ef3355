"""Every zoo model against its original torch module in float64."""

import numpy as np
import pytest

from examples.zoo import ZOO
from tests.parity.original import Case, departures

pytestmark = pytest.mark.usefixtures("every_rung")

# The fast suite keeps one of each kind.
_FAST = {
    "mlp",
    "conv1d",
    "keyword",
    "vgg16_bn",
    "mobilenet_v2",
    "wrn28_2",
    "vit_tiny",
}
_MODELS = [pytest.param(n, marks=[] if n in _FAST else [pytest.mark.slow]) for n in ZOO]


@pytest.fixture(scope="module", params=_MODELS)
def case(request):
    made = Case(request.param)
    made.step, made.smallest = made.engine_step()  # every model of the zoo can be trained
    return made


def test_zoo_model_has_the_loss_gradients_and_statistics_of_torch(case):
    assert set(case.step.gradients) == {n for n, _ in case.module.named_parameters()}
    assert departures(case, case.step) == []


def test_zoo_model_has_the_same_bits_at_its_minimum_budget(case):
    small, _ = case.engine_step(budget=case.smallest)
    assert small.loss == case.step.loss
    for name, gradient in case.step.gradients.items():
        np.testing.assert_array_equal(small.gradients[name], gradient, err_msg=name)
    for name, statistic in case.step.buffers.items():
        np.testing.assert_array_equal(small.buffers[name], statistic, err_msg=name)


def test_zoo_model_stored_in_fp16_has_nearly_the_loss_of_torch(case):
    half, _ = case.engine_step(precision="fp16", loss_scale=1024.0)  # a run would settle on less
    assert half.loss == pytest.approx(case.step.loss, rel=1e-2)
    assert all(np.isfinite(g).all() for g in half.gradients.values())


@pytest.mark.parametrize(
    "name", ["transformer_encoder", "vit_tiny", pytest.param("gpt", marks=pytest.mark.slow)]
)
def test_zoo_model_has_the_gradients_of_torch_by_blocks_of_attention(name):
    case = Case(name)
    step, smallest = case.engine_step(allow=("attention",))
    assert departures(case, step) == []
    small, _ = case.engine_step(allow=("attention",), budget=smallest)
    assert small.loss == step.loss
    for parameter, gradient in step.gradients.items():
        np.testing.assert_array_equal(small.gradients[parameter], gradient, err_msg=parameter)


@pytest.mark.slow
def test_wrn28_2_at_full_size_equals_torch():
    case = Case("wrn28_2", "full", batch=10)
    step, smallest = case.engine_step()
    assert departures(case, step) == []
    small, _ = case.engine_step(budget=smallest)  # leaves no room for Winograd's workspace
    assert departures(case, small) == []
    direct, _ = case.engine_step(convolutions="direct")
    for name, gradient in direct.gradients.items():
        np.testing.assert_array_equal(small.gradients[name], gradient, err_msg=name)
