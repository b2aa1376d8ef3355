"""Every loss beside torch, from the ONNX file on; what its record says."""

import json

import pytest

from edgetrain.exporters.parity import parity
from edgetrain.losses import Loss

from ..compiler.nets import Net
from .cases import LOSS_CASES


def linear(shape: tuple[int, ...]):
    """A model of one matrix, of this output's shape after the batch."""
    net = Net(*shape[:-1], 5)
    name = net.add("MatMul", ["x", net.weight("w", 5, shape[-1])], "h")
    return net.model(net.add("Add", [name, net.weight("b", shape[-1])], "y"))


@pytest.mark.parametrize("case", LOSS_CASES)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_loss_and_gradients_equal_torchs(case, precision):
    loss, shape = LOSS_CASES[case]
    report = parity(linear(shape), loss=loss, steps=2, batch=6, precision=precision)
    assert report.ok, report.summary()


@pytest.mark.parametrize("case", LOSS_CASES)
def test_loss_is_made_again_from_its_record(case):
    loss, _ = LOSS_CASES[case]
    assert Loss.of_json(json.loads(json.dumps(loss.to_json()))) == loss
