"""Small nets quantised by onnxruntime."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from torch import nn

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity_file import OwnFile

SHAPE = (1, 8, 8)
CLASSES = 10

_U8, _I8 = QuantType.QUInt8, QuantType.QInt8
_QDQ, _OPERATORS = QuantFormat.QDQ, QuantFormat.QOperator
# How a file is quantised; "dynamic" measures activations at run time.
WAYS: dict[str, dict] = {
    "tensor": {"quant_format": _QDQ},
    "channel": {"quant_format": _QDQ, "per_channel": True},
    "unsigned": {
        "quant_format": _QDQ, "per_channel": True, "activation_type": _U8, "weight_type": _U8,
    },
    "mixed": {"quant_format": _QDQ, "activation_type": _U8, "weight_type": _I8},
    "operators": {"quant_format": _OPERATORS, "per_channel": True},
    "unsigned operators": {
        "quant_format": _OPERATORS, "activation_type": _U8, "weight_type": _U8,
    },
    "dynamic": {},
    "dynamic channel": {"per_channel": True},
}  # fmt: skip
STATIC = [way for way in WAYS if not way.startswith("dynamic")]


def net() -> nn.Module:
    """Convolutions with a norm between them, pooling, a linear layer."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


class _Calibration(CalibrationDataReader):
    def __init__(self, name: str, batches) -> None:
        self._batches = iter([{name: batch} for batch in batches])

    def get_next(self):
        return next(self._batches, None)


def images(seed: int, count: int = 16) -> np.ndarray:
    """Draw noise pictures [count, *SHAPE]."""
    return np.random.default_rng(seed).normal(size=(count, *SHAPE)).astype(np.float32)


def quantised(
    way: str, folder: Path, source: Path | None = None, batches=None, build: Callable = net
) -> Path:
    """Quantise `source` (default: an export of `build`) in one of WAYS; return the file.

    Args:
      batches: data that calibrates the ranges of activations.
    """
    if source is None:
        source = folder / "float.onnx"
        export_torch(build(), (torch.from_numpy(images(0)),), source)
    plain, path = folder / "inference.onnx", folder / f"{way.replace(' ', '_')}.onnx"
    name = _for_inference(source, plain)
    options = WAYS[way]
    if way not in STATIC:
        kinds = ["MatMul", "Gemm", "Conv"]
        quantize_dynamic(plain, path, op_types_to_quantize=kinds, **options)
        return path
    batches = [images(k) for k in range(1, 4)] if batches is None else batches
    quantize_static(plain, path, _Calibration(name, batches), **options)
    return path


def _for_inference(source: Path, to: Path) -> str:
    """Copy the file with batch-norms in inference mode; return the input's name."""
    proto = onnx.load(source)
    for node in proto.graph.node:
        if node.op_type == "BatchNormalization":
            del node.output[1:]
            kept = [a for a in node.attribute if a.name != "training_mode"]
            del node.attribute[:]
            node.attribute.extend(kept)
    onnx.save(proto, to)
    return proto.graph.input[0].name


def run(path: Path, x: np.ndarray) -> np.ndarray:
    """Return onnxruntime's output, or onnx.reference's if onnxruntime's sums saturate."""
    file = OwnFile(et.load_onnx(path))
    (name,) = file.inputs
    return next(iter(file.run({name: x}).values()))
