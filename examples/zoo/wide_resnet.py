"""WideResNet (pre-activation), with identity shortcuts and with projections.

Sources: Zagoruyko and Komodakis 2016, "Wide Residual Networks"; the identity shortcuts are
those of WRN-28-2 in Huang et al., "Low-Memory Neural Network Training: A Technical Report": where
the shape changes, the map is average-pooled and padded with zero channels, which leaves out
about 11 thousand weights of 1.46 million.
"""

import torch
from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, classes, floats, pick


class Block(nn.Module):
    """Norm, ReLU, convolution, twice, plus a shortcut.

    A projected shortcut reads the activated input, an identity one the input itself.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, projection: bool) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.stride = stride
        self.missing = outputs - inputs
        self.project = None
        if projection and (self.missing or stride > 1):
            self.project = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = torch.relu(self.norm1(x))
        y = self.conv2(torch.relu(self.norm2(self.conv1(active))))
        return y + (self._identity(x) if self.project is None else self.project(active))

    def _identity(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            x = nn.functional.avg_pool2d(x, self.stride)
        if self.missing:
            x = nn.functional.pad(x, (0, 0, 0, 0, 0, self.missing))
        return x


class WideResNet(nn.Module):
    """WRN-depth-k for images [batch, 3, 32, 32]; depth is 6 * blocks + 4.

    Args:
      blocks: residual blocks in each of the three groups.
      k: how many times wider than 16, 32, 64 the groups are.
      projection: 1x1 convolutions if the shape changes, else identity shortcuts.
      base: filters of the first convolution.
      n_classes: logits.
    """

    def __init__(
        self, blocks: int, k: int, projection: bool, base: int = 16, n_classes: int = 10
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, base, 3, 1, 1, bias=False)
        groups, inputs = [], base
        for group in range(3):
            outputs = base * k * 2**group
            row = []
            for index in range(blocks):
                stride = 2 if group and not index else 1
                row.append(Block(inputs, outputs, stride, projection))
                inputs = outputs
            groups.append(nn.Sequential(*row))
        self.groups = nn.Sequential(*groups)
        self.norm = nn.BatchNorm2d(inputs)
        self.head = nn.Linear(inputs, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.groups(self.stem(x))))
        return self.head(x.mean((2, 3)))


def _wrn(name: str, projection: bool) -> ZooModel:
    def build(scale: Scale) -> WideResNet:
        blocks, base = pick(scale, (1, 4), (4, 16))
        return WideResNet(blocks, 2, projection, base)

    return ZooModel(name, build, floats((3, 16, 16), (3, 32, 32)), classes(10, 10))


MODELS = (_wrn("wrn28_2", False), _wrn("wrn28_2_projection", True))
