"""The nets whose Programs are mutated: every family of kernels is in one of them."""

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

import edgetrain as et
from edgetrain.ops.model import Model
from edgetrain.program import Program

from ..compiler.nets import Net, residual
from ..planner import hurried


def _mlp() -> Model:
    net = Net(12)
    x = net.add("Gemm", ["x", net.weight("one.w", 12, 16), net.weight("one.b", 16)], "one")
    x = net.add("Tanh", [x], "act")
    return net.model(net.add("Gemm", [x, net.weight("two.w", 16, 3)], "logits"))


def _depthwise() -> Model:
    net = Net(4, 8, 8)
    x = net.norm(net.conv("x", "stem", 8, 4, 1), "norm", 8)
    attrs = {"group": 8, "pads": [1] * 4, "strides": [2, 2]}
    x = net.add("Conv", [x, net.weight("deep.w", 8, 1, 3, 3)], "deep", **attrs)
    x = net.add("HardSwish", [x], "act")
    x = net.add("AveragePool", [x], "average", kernel_shape=[2, 2], strides=[2, 2])
    return net.model(net.head(net.conv(x, "project", 6, 8, 1), 6))


def _transposed() -> Model:
    net = Net(3, 6, 6)
    x = net.conv("x", "down", 6, 3)
    x = net.add("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("ConvTranspose", [x, net.weight("up.w", 6, 4, 2, 2)], "up", strides=[2, 2])
    net.constants["scales"] = np.float32([1, 1, 1.5, 2])
    x = net.add("Resize", [x, "", "scales"], "resized", mode="linear")
    return net.model(net.head(net.add("LRN", [x], "lrn", size=3), 4))


def _lstm() -> Model:
    net, hidden = Net(7, 5), 6
    x = net.add("Transpose", ["x"], "turned", perm=[1, 0, 2])
    weights = [net.weight("w", 2, 4 * hidden, 5), net.weight("r", 2, 4 * hidden, hidden)]
    attrs = {"hidden_size": hidden, "direction": "bidirectional"}
    x = net.add("LSTM", [x, *weights, net.weight("b", 2, 8 * hidden)], "states", **attrs)
    x = net.add("ReduceMean", [x], "mean", axes=[0, 1], keepdims=0)
    return net.model(net.add("Gemm", [x, net.weight("fc.w", hidden, 3)], "logits"))


def _attention() -> Model:
    net, wide = Net(6, dtype=TensorProto.INT64), 8
    x = net.add("Gather", [net.weight("tokens", 11, wide), "x"], "embedded")
    q, k, v = (net.add("MatMul", [x, net.weight(f"{n}.w", wide, wide)], n) for n in "qkv")
    turned = net.add("Transpose", [k], "turned", perm=[0, 2, 1])
    scores = net.add("Softmax", [net.add("MatMul", [q, turned], "scores")], "shares", axis=-1)
    x = net.add("Add", [net.add("MatMul", [scores, v], "mixed"), x], "sum")
    parameters = [net.weight("norm.gamma", wide), net.weight("norm.beta", wide)]
    x = net.add("LayerNormalization", [x, *parameters], "normed")
    x = net.add("ReduceMean", [x], "mean", axes=[1], keepdims=0)
    return net.model(net.add("Gemm", [x, net.weight("fc.w", wide, 3)], "logits"))


def _pools() -> Model:
    net = Net(2, 9, 9)
    x = net.add("MaxPool", [net.conv("x", "stem", 4, 2)], "most", kernel_shape=[3, 3], pads=[1] * 4)
    x = net.add("AveragePool", [x], "average", kernel_shape=[3, 3], strides=[2, 2])
    parts = [net.add("Relu", [x], "relu"), net.add("Sigmoid", [x], "gate")]
    return net.model(net.head(net.add("Concat", parts, "joined", axis=1), 8))


_SPARSE = {"density": 0.4, "rewiring": "dsr", "minibatch": 8, "microbatch": 4}
NETS: dict[str, tuple[Callable[[], Model], dict]] = {
    "mlp": (_mlp, {"optimizer": "adamw"}),
    "residual": (residual, {}),
    "depthwise": (_depthwise, {}),
    "transposed": (_transposed, {}),
    "lstm": (_lstm, {}),
    "attention": (_attention, {"optimizer": "adam"}),
    "sparse": (residual, _SPARSE),
    "fused sparse": (
        residual,
        {**_SPARSE, "microbatch": 8, "fused_update": True, "max_grad_norm": 0.0},
    ),
    "pools": (_pools, {"minibatch": 4}),
}


def compiled(name: str) -> Program:
    """The Program of one of NETS."""
    build, options = NETS[name]
    settings = {"minibatch": 8, "microbatch": 4, "threads": 2, "max_grad_norm": 1.0} | options
    with hurried():
        return et.compile(build(), **settings)
