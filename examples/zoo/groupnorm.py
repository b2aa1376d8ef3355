"""Convolutional net with group normalization, which does not depend on the microbatch size.

Source: Wu and He 2018, "Group Normalization".
"""

from torch import Tensor, nn

from examples.zoo.spec import ZooModel, classes, floats, pick


class GroupNormNet(nn.Module):
    """Convolution, group norm, ELU per stage; the size is halved by average pooling.

    Args:
      widths: filters of the stages; multiples of `groups`.
      groups: number of groups; channels of a group are normalized together.
      n_classes: logits.
    """

    def __init__(self, widths: tuple[int, ...], groups: int, n_classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for outputs in widths:
            layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            layers += [nn.GroupNorm(groups, outputs), nn.ELU(), nn.AvgPool2d(2)]
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


MODELS = (
    ZooModel(
        "groupnorm",
        lambda scale: GroupNormNet(*pick(scale, ((4, 8), 2, 5), ((32, 64, 128), 8, 10))),
        floats((3, 12, 12), (3, 32, 32)),
        classes(5, 10),
    ),
)
