"""A variational autoencoder: pictures from four numbers; the model computes its own KL term."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.exporters import export_torch

OUTPUTS = ["picture", "kl"]
LOSS = {"losses": {"picture": "bce_with_logits", "kl": et.Loss("output", weight=0.01)}}


class Vae(nn.Module):
    """Pictures [n, 64] -> logits of their pixels [n, 64], and KL divergences [n]."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.latent = nn.Linear(64, 32), nn.Linear(32, 8)
        self.decode = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log = self.latent(torch.tanh(self.encode(x))).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * (log / 2).exp()
        return self.decode(drawn), (mean**2 + log.exp() - 1 - log).sum(1) / 2


def data(n: int) -> dict[str, Tensor]:
    return dict.fromkeys(("x", "picture"), torch.eye(8)[torch.randint(8, (n,))].repeat(1, 8))


def torch_loss(outputs: tuple[Tensor, Tensor], batch: dict[str, Tensor]) -> Tensor:
    """The same loss in torch."""
    x, kl = batch["picture"], outputs[1].mean()
    return F.binary_cross_entropy_with_logits(outputs[0], x) + 0.01 * kl


if __name__ == "__main__":
    export_torch(Vae(), torch.zeros(2, 64), "vae.onnx", output_names=OUTPUTS)
    et.Trainer(et.compile("vae.onnx", **LOSS), data(640)).fit(epochs=2)
