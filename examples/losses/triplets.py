"""A triplet net: an anchor is closer to its own class than to another, by a margin."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.exporters import export_torch

OUTPUTS = ["triplet"]
LOSS = {"loss": et.Loss("triplet", margin=0.5)}


class Triplets(nn.Module):
    """Three inputs [n, 20] -> their vectors [n, 3, 8] by one net."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return torch.stack([self.net(x) for x in (anchor, positive, negative)], 1)


def data(n: int) -> dict[str, Tensor]:
    """Two samples of one class and one of another; there are no labels."""
    own, other = torch.randn(2, n, 20)
    noise = 0.3 * torch.randn(3, n, 20)
    return {"anchor": own + noise[0], "positive": own + noise[1], "negative": other + noise[2]}


def torch_loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The same loss in torch."""
    return F.triplet_margin_loss(*outputs.unbind(1), margin=0.5)


if __name__ == "__main__":
    export_torch(Triplets(), (torch.zeros(2, 20),) * 3, "triplets.onnx")
    et.Trainer(et.compile("triplets.onnx", **LOSS), data(640)).fit(epochs=2)
