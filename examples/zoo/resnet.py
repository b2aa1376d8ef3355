"""ResNet with basic blocks (18) and bottlenecks (50).

Source: He et al. 2016, "Deep Residual Learning for Image Recognition"; the stride of a
bottleneck is in its 3x3 convolution, as is usual today.
"""

import torch
from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, classes, floats, pick


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution that keeps the size at stride 1, and its batch-norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """A residual block; the shortcut is projected if the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        self.outputs = 4 * width if bottleneck else width
        if bottleneck:
            shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
        else:
            shapes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        self.layers = nn.ModuleList(conv_norm(*shape) for shape in shapes)
        changed = stride != 1 or inputs != self.outputs
        self.shortcut = conv_norm(inputs, self.outputs, 1, stride) if changed else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for index, layer in enumerate(self.layers):
            y = layer(torch.relu(y) if index else y)
        return torch.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet for images [batch, 3, size, size].

    Args:
      blocks: number in each of the four stages.
      bottleneck: 1x1, 3x3, 1x1 blocks with four times the width at their end.
      width: filters of the first stage; doubled at each next one.
      n_classes: logits.
    """

    def __init__(
        self, blocks: tuple[int, ...], bottleneck: bool, width: int = 64, n_classes: int = 1000
    ) -> None:
        super().__init__()
        self.stem = conv_norm(3, width, 7, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        stages, inputs = [], width
        for stage, count in enumerate(blocks):
            row: list[nn.Module] = []
            for index in range(count):
                stride = 2 if stage and not index else 1
                block = Block(inputs, width * 2**stage, stride, bottleneck)
                inputs = block.outputs
                row.append(block)
            stages.append(nn.Sequential(*row))
        self.stages = nn.Sequential(*stages)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.pool(torch.relu(self.stem(x))))
        return self.head(torch.flatten(self.average(x), 1))


def _resnet18(scale: Scale) -> ResNet:
    return ResNet((2, 2, 2, 2), False, *pick(scale, (4, 10), (64, 1000)))


def _resnet50(scale: Scale) -> ResNet:
    blocks = pick(scale, (1, 2, 1, 1), (3, 4, 6, 3))
    return ResNet(blocks, True, *pick(scale, (4, 10), (64, 1000)))


_IMAGES = floats((3, 64, 64), (3, 224, 224))
MODELS = (
    ZooModel("resnet18", _resnet18, _IMAGES, classes(10, 1000)),
    ZooModel("resnet50", _resnet50, _IMAGES, classes(10, 1000)),
)
