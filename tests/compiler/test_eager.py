"""The estimate of torch's memory, compared with the tensors that torch saves."""

from pathlib import Path

import pytest
import torch

from edgetrain.api import make_options
from edgetrain.compiler import plan_model
from edgetrain.compiler.plan.eager import eager_account
from edgetrain.exporters import export_torch
from edgetrain.importer import load_onnx
from examples.zoo import ZOO
from tests.quick import slow_except

BATCH = 8


def saved_nbytes(module: torch.nn.Module, inputs: tuple, loss) -> int:
    """Return the bytes that autograd keeps after forward, excluding parameters and buffers."""
    own = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = tensor  # kept alive so that its address is not reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss(module(*inputs))
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())


@pytest.mark.parametrize(
    "name", slow_except(["resnet18", "unet_transposed", "transformer_encoder"], "resnet18")
)
def test_estimate_is_a_lower_bound_that_is_near(tmp_path: Path, name: str) -> None:
    zoo = ZOO[name]
    torch.manual_seed(0)
    module = zoo.build("small").train()
    inputs, target = zoo.example_inputs(BATCH, "small"), zoo.target(BATCH, "small")
    model = load_onnx(export_torch(module, inputs, tmp_path / "model.onnx"))
    choices = {"minibatch": BATCH, "loss": zoo.loss, "optimizer": "adam"}
    whole, half = (make_options(**choices, microbatch=m) for m in (BATCH, BATCH // 2))
    found = eager_account(plan_model(model, whole, None)[0])
    kept = saved_nbytes(module, inputs, lambda out: zoo.loss_value(out, target))
    assert 0.55 * kept <= found["saved"] + found["io"] <= 1.02 * kept
    assert found["optimizer"] == pytest.approx(2 * found["params"], rel=0.1)  # Adam's two moments
    again = eager_account(plan_model(model, half, None)[0])
    assert again["saved"] == pytest.approx(found["saved"], rel=0.02)  # only the minibatch matters
