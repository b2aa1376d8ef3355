"""Gradients beyond the range of fp16: the engine skips the step, so no update is judged."""

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


@pytest.mark.parametrize(("precision", "judged"), [("fp32", True), ("fp16", False)])
def test_no_update_is_judged_if_a_gradient_overflows(tmp_path, precision, judged) -> None:
    torch.manual_seed(0)
    path = tmp_path / "steep.onnx"
    export_torch(_Steep(), (torch.randn(2, 4),), path)
    report = parity(path, steps=1, minibatch=4, loss="mse", precision=precision)
    updates = [row for row in report.rows if row.kind == "parameter"]
    assert updates
    assert all((row.tolerance is not None) is judged for row in updates)
