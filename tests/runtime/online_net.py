"""A net of two linear layers and its torch module, for steps on samples passed by the caller."""

from pathlib import Path

import numpy as np
import torch

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.program import Program

FEATURES, CLASSES = 6, 3


class Net(torch.nn.Module):
    """[n, 6] -> [n, 3]."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(FEATURES, 16)
        self.norm = torch.nn.BatchNorm1d(16) if norm else torch.nn.Identity()
        self.fc2 = torch.nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.tanh(self.norm(self.fc1(x))))


def exported(folder: Path, norm: bool = False) -> tuple[Net, Path]:
    """The torch module and its ONNX file."""
    torch.manual_seed(0)
    module, path = Net(norm), folder / "net.onnx"
    export_torch(module, (torch.zeros(2, FEATURES),), path)
    return module.train(), path


def compiled(path: Path, **options) -> Program:
    """Minibatches of 16 in microbatches of 4, SGD with momentum."""
    usual = {"minibatch": 16, "microbatch": 4, "optimizer": et.SGD(lr=0.1, momentum=0.9)}
    return et.compile(path, **{**usual, **options})


def drawn(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random samples whose class is the index of the largest of the first three features."""
    x = np.random.default_rng(seed).standard_normal((count, FEATURES)).astype(np.float32)
    return x, x[:, :CLASSES].argmax(axis=1)
