"""Networks that the benchmarks train: exported from the zoo, or written as ONNX."""

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgetrain.importer import load_onnx
from edgetrain.ops.model import Model

TARGET = "x86-64-v4"  # plans of tables: the same on every machine, whichever processor runs them


def exported(module, example, dims=None) -> Model:
    """Export a torch module; `dims` as in `export_torch`."""
    from edgetrain.exporters import export_torch

    with tempfile.TemporaryDirectory() as folder:
        return load_onnx(export_torch(module, example, Path(folder, "model.onnx"), dims=dims))


def wrn28_2() -> Model:
    """Export WRN-28-2 from the zoo."""
    import torch

    from examples.zoo import ZOO

    torch.manual_seed(0)
    return exported(ZOO["wrn28_2"].build("full"), (torch.zeros(2, 3, 32, 32),))


class Writer:
    """Builds an ONNX graph; weights are initialized as in He et al. 2015."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.names: list[str] = []

    def weight(self, name: str, array: np.ndarray, trained: bool = True) -> str:
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        if trained:
            self.names.append(name)
        return name

    def conv(
        self, name: str, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1
    ) -> str:
        fan = inputs * kernel * kernel
        shape = (outputs, inputs, kernel, kernel)
        drawn = self.random.standard_normal(shape) * (2.0 / fan) ** 0.5
        w = self.weight(f"{name}.weight", drawn)
        pads = [kernel // 2] * 4
        self.nodes.append(
            helper.make_node("Conv", [x, w], [name], name=name, pads=pads, strides=[stride, stride])
        )
        return name

    def norm_relu(self, name: str, x: str, channels: int) -> str:
        inputs = [x]
        for tag, value, trained in (
            ("weight", 1.0, True),
            ("bias", 0.0, True),
            ("running_mean", 0.0, False),
            ("running_var", 1.0, False),
        ):
            inputs.append(self.weight(f"{name}.{tag}", np.full(channels, value), trained))
        outputs = [f"{name}.y", f"{name}.mean", f"{name}.var"]
        self.nodes.append(
            helper.make_node("BatchNormalization", inputs, outputs, name=name, training_mode=1)
        )
        self.nodes.append(helper.make_node("Relu", [f"{name}.y"], [f"{name}.relu"]))
        return f"{name}.relu"

    def add(self, name: str, a: str, b: str) -> str:
        self.nodes.append(helper.make_node("Add", [a, b], [name], name=name))
        return name

    def finish(self, name: str, x: str, channels: int, size: int, classes: int, batch="batch"):
        """Average the last map, add a linear layer to the logits, and return the ONNX model.

        Args:
          x: the last map, [batch, channels, ...].
          size: of the input images "x", [batch, 3, size, size].
        """
        self.nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
        self.nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
        w = self.weight("head.weight", self.random.standard_normal((classes, channels)) * 0.1)
        b = self.weight("head.bias", np.zeros(classes))
        self.nodes.append(
            helper.make_node("Gemm", ["flat", w, b], ["logits"], name="head", transB=1)
        )
        image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, size, size])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, classes])
        graph = helper.make_graph(self.nodes, name, [image], [logits], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def residual(depth: int, channels: int = 8, size: int = 16, classes: int = 10, batch="batch"):
    """A pre-activation residual network of `depth` convolutions, as ONNX bytes.

    Args:
      depth: convolutions, the first one included; rounded down to an odd number.
      channels, size: of every feature map.
    """
    net = Writer(0)
    x = net.conv("stem", "x", 3, channels, 3)
    for k in range((depth - 1) // 2):
        y = net.norm_relu(f"block{k}.norm1", x, channels)
        y = net.conv(f"block{k}.conv1", y, channels, channels, 3)
        y = net.norm_relu(f"block{k}.norm2", y, channels)
        y = net.conv(f"block{k}.conv2", y, channels, channels, 3)
        x = net.add(f"block{k}.add", x, y)
    x = net.norm_relu("norm", x, channels)
    return net.finish(f"residual{depth}", x, channels, size, classes, batch)


def loaded(written: onnx.ModelProto) -> Model:
    """Load a model that was written here."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(written, path)
        return load_onnx(path)


def residual_model(depth: int, **options) -> Model:
    """`residual` as a loaded model."""
    return loaded(residual(depth, **options))
