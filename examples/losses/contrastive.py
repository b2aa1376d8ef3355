"""InfoNCE: two views of one thing are close, views of different things apart (SimCLR, CLIP)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.exporters import export_torch

OUTPUTS = ["pair"]
LOSS = {"loss": et.Loss("info_nce", temperature=0.2)}


class Encoder(nn.Module):
    """Two views [n, 20] of each thing -> their vectors [n, 2, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.stack([self.net(first), self.net(second)], 1)


def data(n: int) -> dict[str, Tensor]:
    """Two noisy views of each thing; there are no labels."""
    x = torch.randn(n, 20)
    return {"first": x + 0.1 * torch.randn(n, 20), "second": x + 0.1 * torch.randn(n, 20)}


def torch_loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The same loss in torch."""
    a, b = F.normalize(outputs, dim=-1).unbind(1)
    scores, own = a @ b.T / 0.2, torch.arange(len(a))
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2


if __name__ == "__main__":
    export_torch(Encoder(), (torch.zeros(2, 20), torch.zeros(2, 20)), "contrastive.onnx")
    et.Trainer(et.compile("contrastive.onnx", **LOSS), data(640)).fit(epochs=2)
