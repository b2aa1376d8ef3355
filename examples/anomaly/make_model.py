"""The autoencoder of this example: it compresses a window of 64 readings to 12 numbers and back.

Run as `python -m examples.anomaly.make_model`: writes model.onnx here. Needs torch.
"""

from pathlib import Path

import torch
from torch import nn

from edgetrain.exporters import export_torch

PATH = Path(__file__).with_name("model.onnx")


def build() -> nn.Module:
    """64 readings to 12 numbers to 64 readings."""
    return nn.Sequential(
        nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 12), nn.Tanh(), nn.Linear(12, 32), nn.Tanh(),
        nn.Linear(32, 64),
    )  # fmt: skip


if __name__ == "__main__":
    torch.manual_seed(0)
    export_torch(build(), torch.zeros(2, 64), PATH, input_names=["x"])
