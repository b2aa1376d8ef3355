"""Recognises label sequences without alignments: CTC over 20 steps, up to 6 labels."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.exporters import export_torch

OUTPUTS = ["logits"]
LOSS = {"loss": et.Loss("ctc", label_length=6)}  # class 0 is both blank and padding


class Recogniser(nn.Module):
    """Frames [n, 20, 12] -> logits [n, 20, 5] of four labels and the blank."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.out = nn.Conv1d(12, 16, 3, padding=1), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.net(x.mT)).mT)


def data(n: int) -> dict[str, Tensor]:
    """Noise, and one to six labels, padded with the blank."""
    y, lengths = torch.randint(1, 5, (n, 6)), torch.randint(1, 7, (n, 1))
    return {"x": torch.randn(n, 20, 12), "y": y * (torch.arange(6) < lengths)}


def torch_loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The same loss in torch."""
    y, steps = batch["y"], torch.full((len(outputs),), 20)
    return F.ctc_loss(outputs.log_softmax(-1).transpose(0, 1), y, steps, (y > 0).sum(1))


if __name__ == "__main__":
    export_torch(Recogniser(), torch.zeros(2, 20, 12), "recogniser.onnx")
    et.Trainer(et.compile("recogniser.onnx", **LOSS), data(640)).fit(epochs=2)
