"""1-D convolutional net for activity recognition from motion sensors."""

import torch
from torch import Tensor, nn

from examples.zoo.spec import ZooModel, classes, floats, pick


class ActivityNet(nn.Module):
    """Three dilated 1-D convolutions over a window of samples.

    Args:
      channels: sensor axes (6: accelerometer and gyroscope; 9 in UCI HAR).
      width: filters of the first layer.
      n_classes: activities.
    """

    def __init__(self, channels: int, width: int, n_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(channels, width, 5, padding=2)
        self.norm1 = nn.BatchNorm1d(width)
        self.conv2 = nn.Conv1d(width, 2 * width, 5, stride=2, padding=2)
        self.norm2 = nn.BatchNorm1d(2 * width)
        self.conv3 = nn.Conv1d(2 * width, 2 * width, 3, padding=2, dilation=2)
        self.norm3 = nn.BatchNorm1d(2 * width)
        self.pool = nn.MaxPool1d(2)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(2 * width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.norm1(self.conv1(x))))
        x = torch.relu(self.norm2(self.conv2(x)))
        x = torch.relu(self.norm3(self.conv3(x)))
        return self.head(self.dropout(x.mean(2)))


MODELS = (
    ZooModel(
        "conv1d",
        lambda scale: ActivityNet(*pick(scale, (3, 4, 4), (9, 64, 6))),
        floats((3, 32), (9, 128)),
        classes(4, 6),
    ),
)
