"""U-Net for segmentation, upsampling by transposed convolution or by bilinear resize.

Source: Ronneberger et al. 2015, "U-Net: Convolutional Networks for Biomedical Image Segmentation",
with padded convolutions and batch-norm.
"""

import torch
from torch import Tensor, nn

from examples.zoo.spec import Scale, ZooModel, floats, pick

IGNORED = 255
_SIZE = (24, 256)
_CLASSES = (3, 21)


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    """Return two 3x3 convolutions, each with batch-norm and ReLU."""
    layers: list[nn.Module] = []
    for before in (inputs, outputs):
        layers.append(nn.Conv2d(before, outputs, 3, padding=1, bias=False))
        layers += [nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """U-Net: [batch, 3, size, size] -> [batch, n_classes, size, size].

    Args:
      width: filters at full resolution; doubled at each level down.
      levels: number of times the size is halved.
      n_classes: logits per pixel.
      transposed: transposed convolutions upwards, else bilinear resize and a 1x1 convolution.
    """

    def __init__(self, width: int, levels: int, n_classes: int, transposed: bool) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        self.down = nn.ModuleList(
            double_conv(a, b) for a, b in zip([3, *widths[:-2]], widths[:-1], strict=True)
        )
        self.pool = nn.MaxPool2d(2)
        self.bottom = double_conv(widths[-2], widths[-1])
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(below, above, 2, 2)
            if transposed
            else nn.Sequential(
                nn.Upsample(scale_factor=2.0, mode="bilinear", align_corners=False),
                nn.Conv2d(below, above, 1),
            )
            for below, above in pairs
        )
        self.merge = nn.ModuleList(double_conv(below, above) for below, above in pairs)
        self.head = nn.Conv2d(width, n_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], 1))
        return self.head(x)


def _masks(batch: int, scale: Scale) -> Tensor:
    """Return class indices [batch, size, size]; one row in eight is unlabelled."""
    size = pick(scale, *_SIZE)
    masks = torch.randint(pick(scale, *_CLASSES), (batch, size, size))
    masks[:, ::8] = IGNORED
    return masks


def _unet(name: str, transposed: bool) -> ZooModel:
    def build(scale: Scale) -> UNet:
        width, levels = pick(scale, (4, 2), (64, 4))
        return UNet(width, levels, pick(scale, *_CLASSES), transposed)

    inputs = floats((3, _SIZE[0], _SIZE[0]), (3, _SIZE[1], _SIZE[1]))
    return ZooModel(name, build, inputs, _masks, ignore_index=IGNORED)


MODELS = (_unet("unet_transposed", True), _unet("unet_resize", False))
