"""With gradients beyond the range of fp16, a step changes nothing, and parity expects that."""

import math

import pytest
import torch
from torch import nn

from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity


class _Steep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x) * 3000.0


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_an_update_is_skipped_if_a_gradient_overflows(tmp_path, precision) -> None:
    torch.manual_seed(0)
    path = tmp_path / "steep.onnx"
    export_torch(_Steep(), (torch.randn(2, 4),), path)
    report = parity(path, steps=2, minibatch=4, loss="mse", precision=precision)
    gradients = [row.error for row in report.rows if row.kind == "gradient"]
    updates = [row for row in report.rows if row.kind == "parameter"]
    assert updates and all(row.error <= row.tolerance for row in updates)
    assert all(map(math.isfinite, gradients)) is (precision == "fp32")
