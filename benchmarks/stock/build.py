"""Builds a stock model from the list as a torch module and as an ONNX file."""

import contextlib
import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edgetrain.exporters import export_torch

from .listed import MINIBATCH, Listed


class Taken(nn.Module):
    """A stock model called with named inputs; returns the entry `output` of its result."""

    def __init__(self, model: nn.Module, names: Sequence[str], output: str) -> None:
        super().__init__()
        self.model, self.names, self.output = model, tuple(names), output

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        found = self.model(**dict(zip(self.names, tensors, strict=True)))
        return found[self.output]


class Detector(nn.Module):
    """A detector's backbone and head: raw scores and boxes of every anchor."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.backbone, self.head = model.backbone, model.head

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return self.head(list(self.backbone(x).values()))


def register_detection() -> torch.library.Library:
    """Register operators that torchvision needs if its wheel was built for another torch."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def import_libraries() -> None:
    """Import all libraries that are installed, which takes seconds."""
    library = register_detection()
    for name in ("torchvision", "timm", "transformers"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    del library


def module_of(row: Listed) -> nn.Module:
    """Build the model in training mode, with the same random weights each time."""
    torch.manual_seed(0)
    model = {"torchvision": _torchvision, "timm": _timm, "transformers": _transformers}[
        row.library
    ](row)
    model.train()
    return Taken(model, list(row.inputs), row.output) if row.output else model


def samples_of(row: Listed, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Random inputs of a minibatch, in the order of the row's inputs."""
    draw = torch.Generator().manual_seed(seed)
    made = []
    for shape in row.inputs.values():
        if shape[0] == "tokens":
            made.append(torch.randint(3, 8192, (MINIBATCH, *shape[1:]), generator=draw))
        else:
            made.append(torch.randn(MINIBATCH, *shape, generator=draw))
    return tuple(made)


def megabytes(model: nn.Module) -> int:
    """Size of its weights in float32."""
    return math.ceil(sum(p.numel() for p in model.parameters()) * 4 / 1e6)


def export(row: Listed, path: Path, model: nn.Module) -> Path:
    """Export a row's model to ONNX."""
    return export_torch(model, samples_of(row), path, input_names=list(row.inputs))


def _torchvision(row: Listed) -> nn.Module:
    library = register_detection()
    import torchvision.models as zoo

    given = dict(row.arguments)
    if row.name == "wide_resnet50_2" and "layers" in given:
        model: nn.Module = zoo.ResNet(zoo.resnet.Bottleneck, **given)
    elif row.name.startswith("retinanet"):
        model = Detector(zoo.detection.retinanet_resnet50_fpn(weights_backbone=None, **given))
    elif row.name == "VisionTransformer":
        model = zoo.VisionTransformer(**given)
    else:
        part = next(room for room in (zoo, zoo.segmentation, zoo.video) if hasattr(room, row.name))
        if part is zoo.segmentation:
            given["weights_backbone"] = None
        model = getattr(part, row.name)(weights=None, **given)
    del library
    return model


def _timm(row: Listed) -> nn.Module:
    library = register_detection()
    import timm

    model = timm.create_model(row.name, **row.arguments)
    del library
    return model


def _transformers(row: Listed) -> nn.Module:
    library = register_detection()
    import transformers

    maker = getattr(transformers, row.name)
    config = maker.config_class(**row.arguments)
    for name in ("use_cache", "output_attentions"):
        if hasattr(config, name):
            setattr(config, name, False)
    del library
    return maker(config)
