"""The nets of `kinds.py` in torch; a set of runs contains their ONNX files."""

from pathlib import Path

import torch
from torch import nn

from edgetrain.exporters import export_torch

from .kinds import CLASSES, TIME, TOKENS, WORDS


class Convs(nn.Module):
    """Pictures [batch, 1, 8, 8] -> [batch, CLASSES]."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8)
        self.second, self.drop = nn.Conv2d(8, 8, 3, padding=1), nn.Dropout(0.1)
        self.head = nn.Linear(8 * 16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        return self.head(self.drop(torch.relu(self.second(x)).flatten(1)))


class Cells(nn.Module):
    """Token ids [batch, TIME] -> scores of the next token."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, 8)
        self.cells = cell(8, 8, batch_first=True)
        self.head = nn.Linear(8, TOKENS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(self.tokens(ids))[0])


class Encoder(nn.Module):
    """Token ids [batch, TIME] -> scores of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.head = nn.Linear(16, TOKENS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.tokens(ids)))


def _words() -> nn.Module:
    layers = nn.Embedding(WORDS, 4), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, WORDS)
    return nn.Sequential(*layers)


_NETS = {
    "convs": Convs,
    "regression": Convs,
    "lstm": lambda: Cells(nn.LSTM),
    "gru": lambda: Cells(nn.GRU),
    "encoder": Encoder,
    "words": _words,
}


def write_net(name: str, path: Path) -> Path:
    """Write the ONNX file of a net."""
    torch.manual_seed(0)
    pictures = name in ("convs", "regression")
    example = torch.zeros((2, 1, 8, 8)) if pictures else torch.zeros((2, TIME), dtype=torch.int64)
    export_torch(_NETS[name](), (example,), path)
    return path
