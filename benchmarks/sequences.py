"""Recurrent nets over long sequences, as plain ONNX; weights are in ONNX's LSTM layout."""

import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.ops.model import Model


def lstm_net(
    steps: int, inputs: int, width: int, layers: int, classes: int, embedded: bool = False
) -> Model:
    """LSTM layers and a linear layer to `classes` at every step.

    The input is [batch, steps, inputs] numbers, or [batch, steps] word ids below `inputs`.
    """
    rng, nodes = np.random.default_rng(0), []  # type: np.random.Generator, list
    weights: dict[str, np.ndarray] = {}

    def weight(name: str, *shape: int) -> str:
        weights[name] = ((rng.random(shape) - 0.5) / np.sqrt(width)).astype(np.float32)
        return name

    def add(op: str, reads: list[str], output: str, **attrs) -> str:
        outputs = [output] if op != "LSTM" else [output, "", ""]
        nodes.append(helper.make_node(op, reads, outputs, output, **attrs))
        return output

    if embedded:
        size, kind, shape = width, TensorProto.INT64, ["batch", steps]
        x = add("Gather", [weight("embedding", inputs, width), "x"], "embedded")
    else:
        size, kind, shape, x = inputs, TensorProto.FLOAT, ["batch", steps, inputs], "x"
    x = add("Transpose", [x], "by_time", perm=[1, 0, 2])
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    for k in range(layers):
        own = f"lstm{k}"
        reads = [
            x,
            weight(f"{own}.w", 1, 4 * width, size),
            weight(f"{own}.r", 1, 4 * width, width),
            weight(f"{own}.bias", 1, 8 * width),
        ]
        y = add("LSTM", reads, own, hidden_size=width)
        x, size = add("Squeeze", [y, "axes"], f"{own}.states"), width
    x = add("Transpose", [x], "by_batch", perm=[1, 0, 2])
    x = add("MatMul", [x, weight("head.w", width, classes)], "product")
    x = add("Add", [x, weight("head.bias", classes)], "logits")
    graph = helper.make_graph(
        nodes,
        "lstm",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", steps, classes])],
        [*(numpy_helper.from_array(a, n) for n, a in weights.items()), axes],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(proto, {"edgetrain.parameters": json.dumps(list(weights))})
    return decode(parse(proto.SerializeToString(), "lstm"), Path("lstm"))
