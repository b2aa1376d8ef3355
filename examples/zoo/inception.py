"""Inception-v3, without its auxiliary head.

Source: Szegedy et al. 2016, "Rethinking the Inception Architecture for Computer Vision"; channel
counts as in the published weights.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from examples.zoo.spec import ZooModel, classes, floats, pick

Kernel = int | tuple[int, int]
# filters at full scale -> filters
Width = Callable[[int], int]


class ConvNorm(nn.Module):
    """Convolution, batch-norm (eps 0.001), ReLU; padded to keep the size unless `valid`."""

    def __init__(
        self, inputs: int, outputs: int, kernel: Kernel, stride: int = 1, valid: bool = False
    ) -> None:
        super().__init__()
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (0, 0) if valid else (sides[0] // 2, sides[1] // 2)
        self.conv = nn.Conv2d(inputs, outputs, sides, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))


class Branches(nn.Module):
    """Parallel branches over one input, concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def chain(inputs: int, *layers: tuple[int, Kernel]) -> nn.Sequential:
    """Return size-keeping convolutions in a row, each (filters, kernel)."""
    row = []
    for outputs, kernel in layers:
        row.append(ConvNorm(inputs, outputs, kernel))
        inputs = outputs
    return nn.Sequential(*row)


def pooled(inputs: int, outputs: int) -> nn.Sequential:
    """Return the branch that averages over 3x3, then mixes channels."""
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), ConvNorm(inputs, outputs, 1))


def inception_a(inputs: int, w: Width, pool: int) -> Branches:
    """35x35 block: 1x1, 5x5, double 3x3, pool."""
    return Branches(
        chain(inputs, (w(64), 1)),
        chain(inputs, (w(48), 1), (w(64), 5)),
        chain(inputs, (w(64), 1), (w(96), 3), (w(96), 3)),
        pooled(inputs, pool),
    )


def inception_b(inputs: int, w: Width) -> Branches:
    """35x35 to 17x17."""
    return Branches(
        ConvNorm(inputs, w(384), 3, 2, valid=True),
        nn.Sequential(
            chain(inputs, (w(64), 1), (w(96), 3)), ConvNorm(w(96), w(96), 3, 2, valid=True)
        ),
        nn.MaxPool2d(3, 2),
    )


def inception_c(inputs: int, w: Width, middle: int) -> Branches:
    """17x17 block with factorized 7x7 convolutions."""
    row, column = (1, 7), (7, 1)
    return Branches(
        chain(inputs, (w(192), 1)),
        chain(inputs, (middle, 1), (middle, row), (w(192), column)),
        chain(
            inputs, (middle, 1), (middle, column), (middle, row), (middle, column), (w(192), row)
        ),
        pooled(inputs, w(192)),
    )


def inception_d(inputs: int, w: Width) -> Branches:
    """17x17 to 8x8."""
    first = chain(inputs, (w(192), 1))
    second = chain(inputs, (w(192), 1), (w(192), (1, 7)), (w(192), (7, 1)))
    return Branches(
        nn.Sequential(first, ConvNorm(w(192), w(320), 3, 2, valid=True)),
        nn.Sequential(second, ConvNorm(w(192), w(192), 3, 2, valid=True)),
        nn.MaxPool2d(3, 2),
    )


def inception_e(inputs: int, w: Width) -> Branches:
    """8x8 block; its 3x3 convolutions fork into a row and a column."""
    n = w(384)

    def fork() -> Branches:
        return Branches(ConvNorm(n, n, (1, 3)), ConvNorm(n, n, (3, 1)))

    return Branches(
        chain(inputs, (w(320), 1)),
        nn.Sequential(chain(inputs, (n, 1)), fork()),
        nn.Sequential(chain(inputs, (w(448), 1), (n, 3)), fork()),
        pooled(inputs, w(192)),
    )


class InceptionV3(nn.Module):
    """Inception-v3 for images [batch, 3, size, size], size 107 or more (299 in the paper).

    Args:
      shrink: divides every filter count.
      n_classes: logits.
    """

    def __init__(self, shrink: int, n_classes: int) -> None:
        super().__init__()

        def w(filters: int) -> int:
            return filters // shrink

        self.stem = nn.Sequential(
            ConvNorm(3, w(32), 3, 2, valid=True),
            ConvNorm(w(32), w(32), 3, valid=True),
            ConvNorm(w(32), w(64), 3),
            nn.MaxPool2d(3, 2),
            ConvNorm(w(64), w(80), 1),
            ConvNorm(w(80), w(192), 3, valid=True),
            nn.MaxPool2d(3, 2),
        )
        a = 2 * w(64) + w(96)
        after_b = w(384) + w(96) + a + w(64)
        after_c = 4 * w(192)
        after_d = w(320) + w(192) + after_c
        after_e = w(320) + 4 * w(384) + w(192)
        self.blocks = nn.Sequential(
            inception_a(w(192), w, w(32)),
            inception_a(a + w(32), w, w(64)),
            inception_a(a + w(64), w, w(64)),
            inception_b(a + w(64), w),
            inception_c(after_b, w, w(128)),
            *(inception_c(after_c, w, w(n)) for n in (160, 160, 192)),
            inception_d(after_c, w),
            inception_e(after_d, w),
            inception_e(after_e, w),
        )
        self.dropout = nn.Dropout()
        self.head = nn.Linear(after_e, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x)).mean((2, 3))
        return self.head(self.dropout(x))


MODELS = (
    ZooModel(
        "inception_v3",
        lambda scale: InceptionV3(*pick(scale, (16, 10), (1, 1000))),
        floats((3, 107, 107), (3, 299, 299)),
        classes(10, 1000),
    ),
)
