"""nn.LocalResponseNorm as torch's exporters write it: pools over channels, 3-D for images."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et

NORMS = {
    "odd": ((3, 6, 6), 5, 1e-2, 0.75, 1.0),
    "even": ((3, 6, 6), 4, 2e-2, 0.5, 2.0),
    "sequence": ((3, 9), 3, 1e-1, 0.6, 1.5),
}
BATCH = 3


def export(module: nn.Module, x: torch.Tensor, path: Path, dynamo: bool, **options) -> Path:
    """Run torch.onnx.export without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), path, dynamo=dynamo, input_names=["x"], **options)
    return path


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "script"])
@pytest.mark.parametrize("name", NORMS)
def test_torch_lrn_gradients_equal_torch(name, dynamo, tmp_path, capfd):
    shape, size, alpha, beta, k = NORMS[name]
    torch.manual_seed(0)
    conv = nn.Conv1d if len(shape) == 2 else nn.Conv2d
    module = nn.Sequential(
        conv(3, 7, 3, padding=1), nn.LocalResponseNorm(size, alpha, beta, k), conv(7, 2, 1),
        nn.Flatten(),
    )  # fmt: skip
    x = torch.randn(BATCH, *shape)
    model = et.load_onnx(export(module, x, tmp_path / "m.onnx", dynamo))
    target = torch.randn(module(x).shape)
    loss, gradients = et.loss_and_gradients(model, {"x": x.numpy()}, target.numpy(), loss="mse")
    expected = nn.functional.mse_loss(module.double()(x.double()), target.double())
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for key, parameter in module.named_parameters():
        np.testing.assert_allclose(gradients[key], parameter.grad.numpy(), rtol=2e-4, atol=1e-6)
