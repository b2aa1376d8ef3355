"""Depthwise-separable convolutional net for keyword spotting (DS-CNN).

Source: Zhang et al. 2017, "Hello Edge: Keyword Spotting on Microcontrollers".
"""

import torch
from torch import Tensor, nn

from examples.zoo.spec import ZooModel, classes, floats, pick


class Separable(nn.Module):
    """Depthwise 3x3, pointwise 1x1, batch-norm and ReLU after each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.pointwise = nn.Conv2d(width, width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm1(self.depthwise(x)))
        return torch.relu(self.norm2(self.pointwise(x)))


class KeywordNet(nn.Module):
    """DS-CNN over MFCC frames: [batch, 1, frames, coefficients] -> [batch, n_classes]."""

    def __init__(self, width: int, blocks: int, n_classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, (10, 4), stride=2, padding=(5, 1), bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(*(Separable(width) for _ in range(blocks)))
        self.dropout = nn.Dropout(0.2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(torch.relu(self.norm(self.stem(x))))
        return self.head(torch.flatten(self.dropout(self.pool(x)), 1))


MODELS = (
    ZooModel(
        "keyword",
        lambda scale: KeywordNet(*pick(scale, (8, 2, 4), (64, 4, 12))),
        floats((1, 25, 10), (1, 49, 10)),
        classes(4, 12),
    ),
)
