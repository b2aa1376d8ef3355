"""Gradients beyond the range of fp16: the loss scale is lowered first; with gradients that overflow
all the same, a step changes nothing, and parity expects that."""

import math

import pytest
import torch
from torch import nn

from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import ParityReport, parity
from edgetrain.optim import SGD


class _Steep(nn.Module):
    def __init__(self, slope: float) -> None:
        super().__init__()
        self.linear, self.slope = nn.Linear(4, 3), slope

    def forward(self, x):
        return self.linear(x) * self.slope


def _report(folder, slope: float, precision: str) -> ParityReport:
    torch.manual_seed(0)
    path = folder / "steep.onnx"
    export_torch(_Steep(slope), (torch.randn(2, 4),), path)
    rate = SGD(lr=1e-6)
    return parity(path, steps=2, minibatch=4, loss="mse", precision=precision, optimizer=rate)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_an_update_is_skipped_if_a_gradient_overflows(tmp_path, precision, capsys) -> None:
    report = _report(tmp_path, 3000.0, precision)
    gradients = [row.error for row in report.rows if row.kind == "gradient"]
    updates = [row for row in report.rows if row.kind == "parameter"]
    assert report.ok
    assert updates and all(row.error <= row.tolerance for row in updates)
    assert all(map(math.isfinite, gradients)) is (precision == "fp32")
    assert report.overflows == ([] if precision == "fp32" else [1, 2])
    report.print()
    said = " ".join(capsys.readouterr().out.split())
    assert ("in 2 of 2 steps, gradients are beyond" in said) is bool(report.overflows)
    assert ("or use fp32 or bf16." in said) is bool(report.overflows)
    assert ("overflow in 2 of 2 steps" in report.summary()) is bool(report.overflows)


def test_gradients_that_a_lower_loss_scale_keeps_in_range_are_compared(tmp_path) -> None:
    report = _report(tmp_path, 100.0, "fp16")
    gradients = [row for row in report.rows if row.kind == "gradient"]
    assert report.ok and not report.overflows
    assert all(row.tolerance is not None and math.isfinite(row.error) for row in gradients)
