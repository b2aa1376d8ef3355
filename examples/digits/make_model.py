"""Write model.onnx, the untrained network of the demo; needs torch (`pip install .[torch]`).

python -m examples.digits.make_model
"""

import shutil
from pathlib import Path

import torch
from torch import Tensor, nn

from edgetrain.demo import MODEL
from edgetrain.exporters import export_torch

SEED = 0
FILE = Path(__file__).with_name("model.onnx")


class DigitsNet(nn.Module):
    """Three 3x3 convolutions with batch-norm: [batch, 1, 8, 8] -> [batch, 10] logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 24, 3, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(24)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.norm1(self.conv1(x))))
        x = self.pool(torch.relu(self.norm2(self.conv2(x))))
        x = torch.relu(self.norm3(self.conv3(x)))
        return self.head(x.mean(dim=(2, 3)))


def main() -> None:
    """Export the network with torch's own initial weights."""
    torch.manual_seed(SEED)
    export_torch(DigitsNet(), torch.randn(2, 1, 8, 8), FILE, input_names=["x"])
    shutil.copy(FILE, MODEL)  # `edgetrain demo` has its own copy, which is installed with it


if __name__ == "__main__":
    main()
