"""Autoencoders: convolutional (squared error) and dense (binary pixels)."""

import torch
from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, floats, pick

_SIDE = (12, 28)
_PIXELS = (36, 784)


class ConvAutoencoder(nn.Module):
    """Strided convolutions to a code; transposed convolutions and a nearest-neighbour resize back.

    Args:
      side: of the single-channel image; a multiple of 4.
      width: filters of the first convolution.
      code: size of the code.
    """

    def __init__(self, side: int, width: int, code: int) -> None:
        super().__init__()
        grid = side // 4
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(2 * width * grid * grid, code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 2 * width * grid * grid),
            nn.Unflatten(1, (2 * width, grid, grid)),
            nn.ConvTranspose2d(2 * width, width, 3, 2, 1, output_padding=1),
            nn.LeakyReLU(0.1),
            nn.Upsample(scale_factor=2.0, mode="nearest"),
            nn.Conv2d(width, 1, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


class DenseAutoencoder(nn.Module):
    """Sigmoid layers to a code and back, to one logit per pixel."""

    def __init__(self, pixels: int, hidden: int, code: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(pixels, hidden), nn.Sigmoid(), nn.Linear(hidden, code), nn.Sigmoid()
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, hidden), nn.Sigmoid(), nn.Linear(hidden, pixels)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


def _images(batch: int, scale: Scale) -> Tensor:
    side = pick(scale, *_SIDE)
    return torch.rand(batch, 1, side, side) * 2 - 1


def _pixels(batch: int, scale: Scale) -> Tensor:
    return torch.bernoulli(torch.full((batch, pick(scale, *_PIXELS)), 0.3))


MODELS = (
    ZooModel(
        "autoencoder",
        lambda scale: ConvAutoencoder(*pick(scale, (_SIDE[0], 4, 6), (_SIDE[1], 32, 64))),
        floats((1, _SIDE[0], _SIDE[0]), (1, _SIDE[1], _SIDE[1])),
        _images,
        loss="mse",
    ),
    ZooModel(
        "autoencoder_dense",
        lambda scale: DenseAutoencoder(*pick(scale, (_PIXELS[0], 12, 4), (_PIXELS[1], 256, 32))),
        floats((_PIXELS[0],), (_PIXELS[1],)),
        _pixels,
        loss="bce_with_logits",
    ),
)
