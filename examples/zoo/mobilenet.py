"""MobileNetV2.

Source: Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", table 2.
"""

import torch
from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, classes, floats, pick

# (expansion, channels, repeats, stride of the first)
FULL = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_SMALL = ((1, 8, 1, 1), (4, 8, 2, 2), (4, 16, 2, 2))


def conv_norm_relu6(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution, its batch-norm and ReLU6."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expand, depthwise, project linearly; added to the input if the shape is kept."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            conv_norm_relu6(inputs, hidden) if expansion > 1 else nn.Identity(),
            conv_norm_relu6(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 for images [batch, 3, size, size]; `rows` as in the paper's table 2."""

    def __init__(
        self, rows: tuple[tuple[int, int, int, int], ...], stem: int, last: int, n_classes: int
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm_relu6(3, stem, 3, 2)]
        inputs = stem
        for expansion, outputs, repeats, stride in rows:
            for index in range(repeats):
                step = 1 if index else stride
                layers.append(InvertedResidual(inputs, outputs, step, expansion))
                inputs = outputs
        layers.append(conv_norm_relu6(inputs, last))
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(last, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.features(x), 1)
        return self.head(self.dropout(torch.flatten(x, 1)))


def _build(scale: Scale) -> MobileNetV2:
    return MobileNetV2(*pick(scale, (_SMALL, 8, 32, 10), (FULL, 32, 1280, 1000)))


MODELS = (ZooModel("mobilenet_v2", _build, floats((3, 32, 32), (3, 224, 224)), classes(10, 1000)),)
