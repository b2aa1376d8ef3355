"""Model families people train, in plain torch, each small enough to read.

from examples.zoo import ZOO
model = ZOO["resnet18"]
module = model.build("small")
"""

from examples.zoo import (
    conv1d,
    keyword,
    mlp,
    mobilenet,
    resnet,
    transformer,
    vgg,
    vit,
    wide_resnet,
)
from examples.zoo.spec import ZooModel

_FAMILIES = (mlp, conv1d, keyword, resnet, vgg, mobilenet, wide_resnet, transformer, vit)

ZOO: dict[str, ZooModel] = {model.name: model for family in _FAMILIES for model in family.MODELS}

__all__ = ["ZOO", "ZooModel"]
