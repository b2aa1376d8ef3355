"""Small models for the compiler tests."""

import json
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from edgetrain.api import make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import Graphs, build_graphs
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.ops.model import Model


class Net:
    """Collects nodes and seeded weights; float initializers are trained, except statistics."""

    def __init__(self, *shape: int, seed: int = 0, dtype: int = TensorProto.FLOAT) -> None:
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.shape, self.nodes, self.weights = shape, [], {}
        self.constants: dict[str, np.ndarray] = {}

    def weight(self, name: str, *shape: int) -> str:
        scale = 1 / np.sqrt(max(1, np.prod(shape[1:])))
        self.weights.setdefault(name, (scale * self.rng.standard_normal(shape)).astype(np.float32))
        return name

    def add(self, op: str, inputs, output: str, **attrs) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], output, **attrs))
        return output

    def conv(self, x: str, name: str, k: int, c: int, size: int = 3) -> str:
        pads = [size // 2] * 4
        return self.add("Conv", [x, self.weight(f"{name}.w", k, c, size, size)], name, pads=pads)

    def norm(self, x: str, name: str, c: int) -> str:
        for tag in ("gamma", "beta"):
            self.weight(f"{name}.{tag}", c)
        self.constants |= {f"{name}.mean": np.full(c, 0.25, np.float32)}
        self.constants |= {f"{name}.var": np.full(c, 0.5, np.float32)}
        inputs = [x, *(f"{name}.{tag}" for tag in ("gamma", "beta", "mean", "var"))]
        return self.add("BatchNormalization", inputs, name)

    def head(self, x: str, c: int, classes: int = 3) -> str:
        pooled = self.add("GlobalAveragePool", [x], "pooled")
        flat = self.add("Flatten", [pooled], "flat")
        weight, bias = self.weight("fc.w", c, classes), self.weight("fc.b", classes)
        return self.add("Gemm", [flat, weight, bias], "logits")

    def model(self, *outputs: str) -> Model:
        return decode(parse(self.proto(*outputs).SerializeToString(), "net"), Path("net"))

    def proto(self, *outputs: str) -> ModelProto:
        arrays = [numpy_helper.from_array(a, n) for n, a in (self.weights | self.constants).items()]
        infos = [helper.make_tensor_value_info("x", self.dtype, ["batch", *self.shape])]
        outs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", None])
            for name in outputs
        ]
        graph = helper.make_graph(self.nodes, "net", infos, outs, arrays)
        opsets = [helper.make_opsetid("", 17)]
        opsets += [helper.make_opsetid(n, 1) for n in sorted({n.domain for n in self.nodes} - {""})]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        helper.set_model_props(proto, {"edgetrain.parameters": json.dumps(list(self.weights))})
        return proto


def conv_bn_relu_conv() -> Model:
    """The smallest net that triggers every fusion."""
    net = Net(2, 5, 5)
    x = net.add("Relu", [net.norm(net.conv("x", "conv1", 4, 2), "bn1", 4)], "relu1")
    x = net.add("Relu", [net.conv(x, "conv2", 4, 4)], "relu2")
    return net.model(net.head(x, 4))


def residual(dropout: float = 0.0) -> Model:
    """Two residual blocks with batch-norm, a fork, and optional dropout."""
    net = Net(3, 6, 6)
    x = net.conv("x", "stem", 8, 3)
    for k in range(2):
        y = net.add("Relu", [net.norm(x, f"b{k}.bn1", 8)], f"b{k}.relu1")
        y = net.conv(y, f"b{k}.conv1", 8, 8)
        if dropout:
            net.constants["ratio"] = np.float32(dropout)
            y = net.add("Dropout", [y, "ratio"], f"b{k}.drop")
        y = net.add("Relu", [net.norm(y, f"b{k}.bn2", 8)], f"b{k}.relu2")
        x = net.add("Add", [net.conv(y, f"b{k}.conv2", 8, 8), x], f"b{k}.add")
    x = net.add("Tanh", [x], "act")
    return net.model(net.head(x, 8))


def graphs(model: Model, microbatch: int = 2, **options) -> Graphs:
    """Run every pass with these options."""
    made = make_options(minibatch=microbatch, **options)
    return build_graphs(Compilation(model, made), microbatch)
