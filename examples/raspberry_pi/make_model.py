"""The net of this example: from a window of 32 readings on three axes to one of four activities.

Run as `python -m examples.raspberry_pi.make_model`: writes model.onnx here. Needs torch.
"""

from pathlib import Path

import torch

from edgetrain.exporters import export_torch

PATH = Path(__file__).with_name("model.onnx")


def build() -> torch.nn.Module:
    """96 numbers to 4 activities."""
    return torch.nn.Sequential(torch.nn.Linear(96, 24), torch.nn.ReLU(), torch.nn.Linear(24, 4))


if __name__ == "__main__":
    torch.manual_seed(0)
    export_torch(build(), torch.zeros(2, 96), PATH, input_names=["x"])
