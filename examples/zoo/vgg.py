"""VGG with and without batch-norm.

Source: Simonyan and Zisserman 2015, "Very Deep Convolutional Networks", columns D and E.
"""

from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, classes, floats, pick

_VGG16 = (2, 2, 3, 3, 3)
_VGG19 = (2, 2, 4, 4, 4)


class VGG(nn.Module):
    """Stages of 3x3 convolutions, each ended by a 2x2 max-pool, then three linear layers.

    Args:
      convolutions: number in each of the five stages.
      norm: batch-norm after every convolution.
      width: filters of the first stage; doubled until eight times that.
      grid: side of the pooled map that the classifier reads.
      hidden: width of the classifier.
      n_classes: logits.
    """

    def __init__(
        self,
        convolutions: tuple[int, ...],
        norm: bool,
        width: int = 64,
        grid: int = 7,
        hidden: int = 4096,
        n_classes: int = 1000,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for stage, count in enumerate(convolutions):
            outputs = width * min(2**stage, 8)
            for _ in range(count):
                layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
                if norm:
                    layers.append(nn.BatchNorm2d(outputs))
                layers.append(nn.ReLU(inplace=True))
                inputs = outputs
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(grid)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs * grid * grid, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, n_classes),
        )
        for part in self.features:
            if isinstance(part, nn.Conv2d):  # otherwise the signal dies out without batch-norm
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(x)))


def _vgg(name: str, convolutions: tuple[int, ...], norm: bool) -> ZooModel:
    def build(scale: Scale) -> VGG:
        return VGG(convolutions, norm, *pick(scale, (4, 1, 16, 10), (64, 7, 4096, 1000)))

    return ZooModel(name, build, floats((3, 32, 32), (3, 224, 224)), classes(10, 1000))


MODELS = (
    _vgg("vgg16_bn", _VGG16, True),
    _vgg("vgg19", _VGG19, False),
    _vgg("vgg19_bn", _VGG19, True),
)
