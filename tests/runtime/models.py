"""A small model with everything recomputation must preserve: batch-norm, dropout, a fork."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def _weights(draw: np.random.Generator, name: str, *shape: int) -> onnx.TensorProto:
    scale = np.sqrt(2.0 / max(1, np.prod(shape[1:])))
    return numpy_helper.from_array((draw.standard_normal(shape) * scale).astype(np.float32), name)


def _block(name: str, source: str, width: int, draw: np.random.Generator):
    """Convolution, batch-norm, ReLU, dropout: (nodes, initializers)."""
    w, scale, bias, mean, var = (f"{name}.{part}" for part in ("w", "gamma", "beta", "mean", "var"))
    ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
    arrays = [_weights(draw, w, width, width, 3, 3)]
    for key, array in ((scale, ones), (bias, zeros), (mean, zeros), (var, ones)):
        arrays.append(numpy_helper.from_array(array, key))
    nodes = [
        helper.make_node("Conv", [source, w], [f"{name}.c"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", [f"{name}.c", scale, bias, mean, var],
            [f"{name}.b", f"{name}.newmean", f"{name}.newvar"], training_mode=1,
        ),
        helper.make_node("Relu", [f"{name}.b"], [f"{name}.r"]),
        helper.make_node("Dropout", [f"{name}.r", "ratio", "training"], [f"{name}.d"]),
    ]  # fmt: skip
    return nodes, arrays


def write_forked(path: Path, width: int = 8, blocks: int = 3) -> Path:
    """A residual net for the digits: [batch, 1, 8, 8] -> [batch, 10]."""
    draw = np.random.default_rng(0)
    arrays = [
        _weights(draw, "stem.w", width, 1, 3, 3),
        _weights(draw, "head.w", 10, width),
        numpy_helper.from_array(np.zeros(10, np.float32), "head.b"),
        numpy_helper.from_array(np.float32(0.25), "ratio"),
        numpy_helper.from_array(np.bool_(True), "training"),
    ]
    nodes = [helper.make_node("Conv", ["x", "stem.w"], ["fork0"], pads=[1, 1, 1, 1])]
    for k in range(blocks):
        more, weights = _block(f"block{k}", f"fork{k}", width, draw)
        nodes += [*more, helper.make_node("Add", [f"block{k}.d", f"fork{k}"], [f"fork{k + 1}"])]
        arrays += weights
    nodes += [
        helper.make_node("GlobalAveragePool", [f"fork{blocks}"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "head.w", "head.b"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "forked",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        arrays,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    onnx.save(model, path)
    return path


def write_mlp(path: Path, inputs: int, hidden: int, classes: int, seed: int = 0) -> Path:
    """Two linear layers with ReLU between: [batch, inputs] -> [batch, classes]."""
    draw = np.random.default_rng(seed)
    arrays = [_weights(draw, "one.w", hidden, inputs), _weights(draw, "two.w", classes, hidden)]
    for name, n in (("one.b", hidden), ("two.b", classes)):
        arrays.append(numpy_helper.from_array(np.zeros(n, np.float32), name))
    nodes = [
        helper.make_node("Gemm", ["x", "one.w", "one.b"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "two.w", "two.b"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", inputs])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
        arrays,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


def write_rows(path: Path, shape: tuple[int, ...] = (3, 8), classes: int = 10) -> Path:
    """Flatten and one linear layer: [batch, *shape] -> [batch, classes]."""
    draw = np.random.default_rng(0)
    arrays = [_weights(draw, "w", classes, int(np.prod(shape)))]
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("Gemm", ["f", "w"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
        arrays,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path
