"""A forecaster with an interval: quantiles .1, .5 and .9 of the next four readings."""

import torch
from torch import Tensor, nn

import edgetrain as et
from edgetrain.exporters import export_torch

OUTPUTS = ["quantiles"]
LEVELS = (0.1, 0.5, 0.9)
LOSS = {"loss": et.Loss("quantile", quantiles=LEVELS)}


class Forecast(nn.Module):
    """The last 24 readings -> quantiles [n, 4, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 12))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).unflatten(1, (4, 3))


def data(n: int) -> dict[str, Tensor]:
    """Noisy waves."""
    wave = torch.sin(torch.arange(28) / 3 + 6 * torch.rand(n, 1)) + 0.2 * torch.randn(n, 28)
    return {"x": wave[:, :24], "y": wave[:, 24:]}


def torch_loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The same loss in torch."""
    d = batch["y"].unsqueeze(-1) - outputs
    return torch.maximum(torch.tensor(LEVELS) * d, (torch.tensor(LEVELS) - 1) * d).mean()


if __name__ == "__main__":
    export_torch(Forecast(), torch.zeros(2, 24), "forecast.onnx")
    et.Trainer(et.compile("forecast.onnx", **LOSS), data(640)).fit(epochs=2)
