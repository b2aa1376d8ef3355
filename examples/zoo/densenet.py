"""DenseNet.

Source: Huang et al. 2017, "Densely Connected Convolutional Networks", table 1 (DenseNet-121).
"""

import torch
from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, classes, floats, pick

_BOTTLENECK = 4


class DenseLayer(nn.Module):
    """Norm, ReLU, 1x1, norm, ReLU, 3x3; its `growth` channels are appended to the input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, _BOTTLENECK * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(_BOTTLENECK * growth)
        self.conv2 = nn.Conv2d(_BOTTLENECK * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(torch.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(torch.relu(self.norm2(new)))], 1)


def transition(inputs: int, outputs: int) -> nn.Sequential:
    """Return the layers between two dense blocks: half the channels, half the size."""
    return nn.Sequential(
        nn.BatchNorm2d(inputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.AvgPool2d(2, 2),
    )


class DenseNet(nn.Module):
    """DenseNet for images [batch, 3, size, size]; `blocks` counts the layers of each block."""

    def __init__(self, growth: int, blocks: tuple[int, ...], stem: int, n_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem, 7, 2, 3, bias=False),
            nn.BatchNorm2d(stem),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        layers: list[nn.Module] = []
        channels = stem
        for index, count in enumerate(blocks):
            if index:
                layers.append(transition(channels, channels // 2))
                channels //= 2
            for _ in range(count):
                layers.append(DenseLayer(channels, growth))
                channels += growth
        self.features = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.features(self.stem(x))))
        return self.head(x.mean((2, 3)))


def _build(scale: Scale) -> DenseNet:
    return DenseNet(*pick(scale, (4, (2, 2, 2), 8, 10), (32, (6, 12, 24, 16), 64, 1000)))


MODELS = (ZooModel("densenet", _build, floats((3, 32, 32), (3, 224, 224)), classes(10, 1000)),)
