"""Multilayer perceptron."""

from torch import Tensor, nn

from examples.zoo.spec import ZooModel, classes, floats, pick


class MLP(nn.Module):
    """Linear layers with ReLU and dropout between them: [batch, n] -> [batch, classes]."""

    def __init__(self, widths: tuple[int, ...], dropout: float = 0.0) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip(widths[:-2], widths[1:-1], strict=True):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-2], widths[-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


MODELS = (
    ZooModel(
        "mlp",
        lambda scale: MLP(pick(scale, (16, 24, 12, 5), (784, 512, 256, 10)), dropout=0.2),
        floats((16,), (784,)),
        classes(5, 10),
    ),
)
