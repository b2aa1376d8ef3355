"""AlexNet, without and with local response normalization.

Sources: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks" (one
tower, no normalization); Krizhevsky et al. 2012, section 3.3, for the normalization.
"""

from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, classes, floats, pick


class AlexNet(nn.Module):
    """AlexNet for images [batch, 3, size, size].

    Args:
      widths: filters of the five convolutions.
      stem: (kernel, stride, padding) of the first one.
      grid: side of the pooled map that the classifier reads.
      hidden: width of the classifier.
      n_classes: logits.
      normalize: local response normalization after the first two convolutions.
    """

    def __init__(
        self,
        widths: tuple[int, ...],
        stem: tuple[int, int, int],
        grid: int,
        hidden: int,
        n_classes: int,
        normalize: bool,
    ) -> None:
        super().__init__()
        kernel, stride, padding = stem
        shapes = [(3, widths[0], kernel, stride, padding), (widths[0], widths[1], 5, 1, 2)]
        shapes += [(a, b, 3, 1, 1) for a, b in zip(widths[1:-1], widths[2:], strict=True)]
        layers: list[nn.Module] = []
        for index, shape in enumerate(shapes):
            layers += [nn.Conv2d(*shape), nn.ReLU(inplace=True)]
            if normalize and index < 2:
                layers.append(nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0))
            if index in (0, 1, 4):
                layers.append(nn.MaxPool2d(3, 2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(grid)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(widths[-1] * grid * grid, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, n_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(x)))


_SMALL = ((4, 8, 12, 8, 8), (5, 2, 2), 1, 16, 10)
_FULL = ((64, 192, 384, 256, 256), (11, 4, 2), 6, 4096, 1000)


def _alexnet(name: str, normalize: bool) -> ZooModel:
    def build(scale: Scale) -> AlexNet:
        return AlexNet(*pick(scale, _SMALL, _FULL), normalize)

    return ZooModel(name, build, floats((3, 31, 31), (3, 224, 224)), classes(10, 1000))


MODELS = (_alexnet("alexnet", False), _alexnet("alexnet_lrn", True))
