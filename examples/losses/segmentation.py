"""A small U-Net with cross-entropy and Dice on one output."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.exporters import export_torch

OUTPUTS = ["mask"]
LOSS = {"losses": {"mask": ["cross_entropy", et.Loss("dice", weight=0.5)]}}


class UNet(nn.Module):
    """Pictures [n, 1, 16, 16] -> logits [n, 3, 16, 16], with one level of downsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = nn.Conv2d(1, 6, 3, 1, 1), nn.Conv2d(6, 12, 3, 1, 1)
        self.up, self.out = nn.ConvTranspose2d(12, 6, 2, 2), nn.Conv2d(12, 3, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.down(x))
        return self.out(torch.cat([h, self.up(torch.relu(self.low(F.max_pool2d(h, 2))))], 1))


def data(n: int) -> dict[str, Tensor]:
    return {"x": torch.randn(n, 1, 16, 16), "mask": torch.randint(3, (n, 16, 16))}


def torch_loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The same loss in torch."""
    p, t = outputs.softmax(1), F.one_hot(batch["mask"], 3).movedim(-1, 1)
    dice = 1 - (2 * (p * t).sum((2, 3)) + 1) / ((p + t).sum((2, 3)) + 1)
    return F.cross_entropy(outputs, batch["mask"]) + 0.5 * dice.mean()


if __name__ == "__main__":
    export_torch(UNet(), torch.zeros(2, 1, 16, 16), "unet.onnx", output_names=OUTPUTS)
    et.Trainer(et.compile("unet.onnx", **LOSS), data(640)).fit(epochs=2)
