"""A detector's head: a class and a box from one backbone, trained by two weighted losses."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.exporters import export_torch

OUTPUTS = ["class", "box"]
LOSS = {"losses": {"class": "cross_entropy", "box": et.Loss("huber", weight=0.5)}}


class Detector(nn.Module):
    """Pictures [n, 1, 16, 16] -> logits of four classes, and a box of four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 8, 3, 2, 1)
        self.heads = nn.Linear(512, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.heads(torch.relu(self.body(x)).flatten(1)).split(4, 1)


def data(n: int) -> dict[str, Tensor]:
    """Noise, with a class and a box for each picture."""
    x, box = torch.randn(n, 1, 16, 16), torch.rand(n, 4)
    return {"x": x, "class": torch.randint(4, (n,)), "box": box}


def torch_loss(outputs: tuple[Tensor, Tensor], batch: dict[str, Tensor]) -> Tensor:
    """The same loss in torch."""
    label, box = outputs
    return F.cross_entropy(label, batch["class"]) + 0.5 * F.huber_loss(box, batch["box"])


if __name__ == "__main__":
    export_torch(Detector(), torch.zeros(2, 1, 16, 16), "boxes.onnx", output_names=OUTPUTS)
    et.Trainer(et.compile("boxes.onnx", **LOSS), data(640)).fit(epochs=2)
