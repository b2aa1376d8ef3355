"""onnx.reference, with fixes for ops that deviate from the ONNX standard.

Parity compares the forward pass with it if onnxruntime is missing or can't run the file, so its
bugs would look like bugs in edgetrain.
"""

import warnings
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_conv_transpose


class GlobalMaxPool(OpRun):
    """Maximum over all axes from the third on; onnx's version assumes images, whatever the rank."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class LpNormalization(OpRun):
    """Uses magnitudes; onnx's version sums signed numbers for p = 1."""

    op_domain = ""

    def _run(self, x: np.ndarray, axis: int, p: int) -> tuple[np.ndarray]:
        norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
        return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0).astype(x.dtype),)


class BatchNormalization(OpRun):
    """Uses only running statistics; below opset 14, onnx's version mixes in batch statistics."""

    op_domain = ""

    def _run(self, x: np.ndarray, *rows: np.ndarray, epsilon: float, **_: Any) -> tuple[np.ndarray]:
        scale, shift, mean, variance = (row.reshape(-1, *[1] * (x.ndim - 2)) for row in rows)
        return ((scale * (x - mean) / np.sqrt(variance + epsilon) + shift).astype(x.dtype),)


class ConvTranspose(op_conv_transpose.ConvTranspose):
    """Divides weights by input channels and biases by output channels; onnx's version of groups
    takes wrong weights, and each group gets the first biases."""

    op_domain = ""

    def _run(self, *inputs: Any, **attrs: Any) -> tuple[np.ndarray]:
        group = attrs.pop("group", None) or 1
        x, w, bias = (*inputs, None)[:3]
        biases = [None] * group if bias is None else np.split(bias, group)
        parts = zip(np.split(x, group, 1), np.split(w, group), biases, strict=True)
        results = [super(ConvTranspose, self)._run(*part, group=1, **attrs)[0] for part in parts]
        return (np.concatenate(results, 1),)


def run(proto: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of a model whose norms are in inference mode; overflow warnings are silenced."""
    opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)
    put_right: list[type[OpRun]] = [GlobalMaxPool, LpNormalization, ConvTranspose]
    if opset < 14:
        put_right.append(BatchNormalization)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = ReferenceEvaluator(proto, new_ops=put_right).run(None, inputs)
    return [np.asarray(array) for array in result]
