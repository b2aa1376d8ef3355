"""Helpers: export a module, run the file, compare it with torch."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from torch import nn

from edgetrain.exporters import export_torch


def export(module: nn.Module, inputs, folder: Path, **options) -> onnx.ModelProto:
    """Export `module`, check the file, return it loaded."""
    path = export_torch(module, inputs, folder / "model.onnx", **options)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return model


def initializers(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return the initializers by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def metadata(model: onnx.ModelProto) -> dict:
    """Return edgetrain's own entries, without their prefix."""
    return {
        prop.key.removeprefix("edgetrain."): json.loads(prop.value)
        for prop in model.metadata_props
        if prop.key.startswith("edgetrain.")
    }


def nodes(model: onnx.ModelProto, op: str) -> list[onnx.NodeProto]:
    """Return the nodes of one op type."""
    return [node for node in model.graph.node if node.op_type == op]


def attribute(node: onnx.NodeProto, name: str):
    """Return one attribute's value."""
    return next(onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name)


def without_dropout(module: nn.Module) -> nn.Module:
    """Set every dropout probability of `module` to zero, in place."""
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
    return module


def updated_statistics(model: onnx.ModelProto) -> list[str]:
    """Return the values that hold the running statistics after the forward pass."""
    return [name for node in nodes(model, "BatchNormalization") for name in node.output[1:]]


def run(model: onnx.ModelProto, inputs: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    """Run the training graph in onnxruntime; updated statistics are outputs too.

    Graph optimizations are off, since they assume inference.
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    model.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name) for name in updated_statistics(model)
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    feed = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    return session.run(None, feed)
