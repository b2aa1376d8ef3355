"""Popular model families in plain torch, each small enough to read.

from examples.zoo import ZOO
model = ZOO["resnet18"]
module = model.build("small")
"""

from examples.zoo import (
    alexnet,
    autoencoder,
    conv1d,
    densenet,
    gpt,
    groupnorm,
    inception,
    keyword,
    lightconv,
    mlp,
    mobilenet,
    recurrent,
    resnet,
    transformer,
    unet,
    vgg,
    vit,
    wide_resnet,
)
from examples.zoo.spec import ZooModel

_FAMILIES = (
    mlp,
    conv1d,
    keyword,
    resnet,
    vgg,
    mobilenet,
    wide_resnet,
    transformer,
    vit,
    alexnet,
    densenet,
    inception,
    unet,
    autoencoder,
    groupnorm,
    recurrent,
    gpt,
    lightconv,
)

ZOO: dict[str, ZooModel] = {model.name: model for family in _FAMILIES for model in family.MODELS}

__all__ = ["ZOO", "ZooModel"]
