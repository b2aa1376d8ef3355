"""Small nets with most families of ops: the seeds of the ONNX fuzzer."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


def _random(*shape) -> np.ndarray:
    return (np.random.default_rng(shape).standard_normal(shape) * 0.4).astype(np.float32)


def _net(nodes, arrays, shape, *, kind=_FLOAT, opset=17, output="y") -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(output, _FLOAT, [None, None])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _mlp():
    nodes = [
        node("Gemm", ["x", "w0", "b0"], ["h"], "first", transB=1),
        node("Gelu", ["h"], ["g"], "gelu"),
        node("Dropout", ["g", "ratio", "yes"], ["d"], "drop"),
        node("Gemm", ["d", "w1", "b1"], ["y"], "second", transB=1, alpha=0.5),
    ]
    arrays = {"w0": _random(8, 6), "b0": _random(8), "w1": _random(3, 8), "b1": _random(3)}
    arrays |= {"ratio": np.float32(0.2), "yes": np.array(True)}
    return _net(nodes, arrays, ["batch", 6], opset=20)


def _cnn():
    nodes = [
        node("Conv", ["x", "c.w", "c.b"], ["c"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c", "s", "o", "m", "v"], ["n"], "norm", epsilon=1e-5),
        node("Relu", ["n"], ["r"], "relu"),
        node("Conv", ["r", "d.w"], ["d"], "depthwise", group=4, pads=[1, 1, 1, 1]),
        node("Clip", ["d", "low", "high"], ["k"], "clip"),
        node("MaxPool", ["k"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("GlobalAveragePool", ["p"], ["a"], "mean"),
        node("Flatten", ["a"], ["f"], "flat", axis=1),
        node("Gemm", ["f", "l.w", "l.b"], ["y"], "head", transB=1),
    ]
    arrays = {"c.w": _random(4, 3, 3, 3), "c.b": _random(4), "d.w": _random(4, 1, 3, 3)}
    arrays |= {"s": np.ones(4, np.float32), "o": _random(4), "m": _random(4)}
    arrays |= {"v": np.ones(4, np.float32), "low": np.float32(0), "high": np.float32(6)}
    return _net(nodes, arrays | {"l.w": _random(3, 4), "l.b": _random(3)}, ["batch", 3, 8, 8])


def _images():
    nodes = [
        node("Pad", ["x", "around"], ["p"], "pad", mode="reflect"),
        node("Resize", ["p", "", "scales"], ["u"], "resize", mode="linear"),
        node("ConvTranspose", ["u", "t.w", "t.b"], ["t"], "up", strides=[2, 2], group=2),
        node("InstanceNormalization", ["t", "i.s", "i.b"], ["i"], "norm"),
        node("LRN", ["i"], ["l"], "lrn", size=3, alpha=0.1),
        node("Split", ["l", "sizes"], ["l0", "l1"], "split", axis=1),
        node("Concat", ["l1", "l0"], ["j"], "join", axis=1),
        node("Slice", ["j", "start", "end", "axes", "steps"], ["s"], "cut"),
        node("DepthToSpace", ["s"], ["z"], "depth", blocksize=2),
        node("AveragePool", ["z"], ["a"], "pool", kernel_shape=[3, 3], strides=[3, 3]),
        node("ReduceMean", ["a"], ["y"], "mean", axes=[2, 3], keepdims=0),
    ]
    arrays = {"around": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "scales": np.float32([1, 1, 1.5, 2])}
    arrays |= {"t.w": _random(2, 2, 2, 2), "t.b": _random(4), "i.s": _random(4), "i.b": _random(4)}
    arrays |= {"sizes": np.array([1, 3]), "start": np.array([0, 1]), "end": np.array([4, 99])}
    arrays |= {"axes": np.array([1, 2]), "steps": np.array([1, 2])}
    return _net(nodes, arrays, ["batch", 2, 4, 4])


def _lstm():
    nodes = [
        node("Gather", ["table", "x"], ["e"], "embed"),
        node("Transpose", ["e"], ["t"], "time", perm=[1, 0, 2]),
        node("LSTM", ["t", "w", "r", "b", "", "h0", "h0"], ["o", "oh", ""], "lstm", hidden_size=4,
             direction="bidirectional"),
        node("Transpose", ["o"], ["q"], "back", perm=[2, 0, 1, 3]),
        node("Reshape", ["q", "flat"], ["f"], "flat"),
        node("MatMul", ["f", "head"], ["y"], "head"),
    ]  # fmt: skip
    arrays = {"table": _random(11, 5), "w": _random(2, 16, 5), "r": _random(2, 16, 4)}
    arrays |= {"b": _random(2, 32), "h0": np.zeros((2, 2, 4), np.float32)}
    arrays |= {"flat": np.array([0, -1]), "head": _random(48, 3)}
    return _net(nodes, arrays, [2, 6], kind=_INT)


def _gru():
    nodes = [
        node("Transpose", ["x"], ["t"], "time", perm=[1, 0, 2]),
        node("GRU", ["t", "w", "r", "b"], ["", "h"], "gru", hidden_size=4, linear_before_reset=1),
        node("RNN", ["t", "rw", "rr"], ["o"], "rnn", hidden_size=4),
        node("Squeeze", ["h", "first"], ["s"], "squeeze"),
        node("Gather", ["o", "last"], ["g"], "last", axis=0),
        node("Squeeze", ["g", "first"], ["k"], "squeeze2"),
        node("Add", ["s", "k"], ["a"], "add"),
        node("Gemm", ["a", "head"], ["y"], "head"),
    ]
    arrays = {"w": _random(1, 12, 3), "r": _random(1, 12, 4), "b": _random(1, 24)}
    arrays |= {"rw": _random(1, 4, 3), "rr": _random(1, 4, 4), "first": np.array([0])}
    return _net(nodes, arrays | {"last": np.array(-1), "head": _random(4, 2)}, ["batch", 5, 3])


def _attention():
    nodes = [
        node("LayerNormalization", ["x", "n.s", "n.b"], ["n"], "norm", axis=-1),
        node("MatMul", ["n", "qkv"], ["m"], "project"),
        node("Reshape", ["m", "heads"], ["h"], "heads"),
        node("Transpose", ["h"], ["t"], "turn", perm=[2, 0, 3, 1, 4]),
        node("Split", ["t"], ["q3", "k3", "v3"], "split", axis=0),
        node("Squeeze", ["q3", "zero"], ["q"], "q"),
        node("Squeeze", ["k3", "zero"], ["k"], "k"),
        node("Squeeze", ["v3", "zero"], ["v"], "v"),
        node("Transpose", ["k"], ["kt"], "kt", perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["a"], "scores"),
        node("Div", ["a", "root"], ["s"], "scale"),
        node("Where", ["mask", "s", "minus"], ["w"], "mask"),
        node("Softmax", ["w"], ["p"], "softmax", axis=-1),
        node("MatMul", ["p", "v"], ["o"], "mix"),
        node("Transpose", ["o"], ["ot"], "merge", perm=[0, 2, 1, 3]),
        node("Reshape", ["ot", "whole"], ["f"], "whole"),
        node("Add", ["f", "x"], ["r"], "residual"),
        node("ReduceMax", ["r"], ["y"], "max", axes=[1], keepdims=0),
    ]
    arrays = {"n.s": _random(8), "n.b": _random(8), "qkv": _random(8, 24)}
    arrays |= {"heads": np.array([0, 0, 3, 2, 4]), "whole": np.array([0, 0, 8])}
    arrays |= {"zero": np.array([0]), "root": np.float32(2), "minus": np.float32(-1e9)}
    return _net(nodes, arrays | {"mask": np.tri(5, dtype=bool)}, ["batch", 5, 8])


def _choices():
    then = helper.make_graph(
        [node("Mul", ["h", "scale"], ["to"], "mul")], "then", [],
        [helper.make_tensor_value_info("to", _FLOAT, [None, None])],
    )  # fmt: skip
    other = helper.make_graph(
        [node("Tanh", ["h"], ["eo"], "tanh")], "other", [],
        [helper.make_tensor_value_info("eo", _FLOAT, [None, None])],
    )  # fmt: skip
    nodes = [
        node("MatMul", ["x", "w"], ["h"], "matmul"),
        node("Shape", ["h"], ["shape"], "shape"),
        node("Gather", ["shape", "one"], ["width"], "width", axis=0),
        node("Equal", ["width", "six"], ["same"], "same"),
        node("If", ["same"], ["i"], "if", then_branch=then, else_branch=other),
        node("Greater", ["i", "zero"], ["above"], "above"),
        node("Cast", ["above"], ["c"], "cast", to=_FLOAT),
        node("Where", ["above", "i", "c"], ["z"], "where"),
        node("Expand", ["row", "shape"], ["e"], "expand"),
        node("Trilu", ["square"], ["tri"], "trilu", upper=0),
        node("Einsum", ["z", "tri"], ["m"], "einsum", equation="bi,ij->bj"),
        node("Sum", ["m", "e", "z"], ["u"], "sum"),
        node("Pow", ["u", "two"], ["p"], "pow"),
        node("CumSum", ["p", "one"], ["k"], "cumsum"),
        node("Tile", ["k", "twice"], ["t"], "tile"),
        node("LogSoftmax", ["t"], ["y"], "softmax", axis=1),
    ]
    arrays = {"w": _random(4, 6), "one": np.array(1), "six": np.array(6), "zero": np.float32(0)}
    arrays |= {"row": _random(1, 6), "square": _random(6, 6), "two": np.float32(2)}
    return _net(nodes, arrays | {"scale": _random(6), "twice": np.array([1, 2])}, ["batch", 4])


def _sequence():
    nodes = [
        node("Conv", ["x", "c.w", "c.b"], ["c"], "conv", pads=[2, 0], dilations=[2]),
        node("PRelu", ["c", "slope"], ["p"], "prelu"),
        node("GroupNormalization", ["p", "g.s", "g.b"], ["g"], "norm", num_groups=2),
        node("Unsqueeze", ["g", "one"], ["u"], "unsqueeze"),
        node("AveragePool", ["u"], ["a"], "pool", kernel_shape=[3, 1], pads=[1, 0, 1, 0]),
        node("Reshape", ["a", "shape"], ["r"], "reshape"),
        node("ReduceL2", ["r", "last"], ["l"], "length", keepdims=0),
        node("Max", ["l", "small"], ["m"], "max"),
        node("Log", ["m"], ["y"], "log"),
    ]
    arrays = {"c.w": _random(4, 2, 3), "c.b": _random(4), "slope": _random(4, 1)}
    arrays |= {"g.s": _random(4), "g.b": _random(4), "one": np.array([1]), "last": np.array([2])}
    arrays |= {"shape": np.array([2, 4, -1]), "small": np.float32(0.01)}
    return _net(nodes, arrays, [2, 2, 9], opset=21)


def _volume():
    nodes = [
        node("Mul", ["x", "scale"], ["m"], "scale"),
        node("MaxPool", ["m"], ["p"], "pool", kernel_shape=[2, 3, 2], strides=[2, 1, 2]),
        node("HardSwish", ["p"], ["h"], "swish"),
        node("GlobalMaxPool", ["h"], ["g"], "max"),
        node("Flatten", ["g"], ["f"], "flat"),
        node("BatchNormalization", ["f", "s", "b", "mean", "var"], ["y"], "norm"),
    ]
    arrays = {"scale": _random(2, 1, 1, 1), "s": _random(2), "b": _random(2)}
    arrays |= {"mean": _random(2), "var": np.ones(2, np.float32)}
    return _net(nodes, arrays, ["batch", 2, 4, 4, 4])


def _loose():
    """No named parameters: constants made by nodes, a weight by ConstantOfShape."""
    nodes = [
        node("ConstantOfShape", ["sizes"], ["w"], "fill"),
        node("Constant", [], ["k"], "k", value_float=0.5),
        node("MatMul", ["x", "w"], ["h"], "matmul"),
        node("Mul", ["h", "k"], ["m"], "mul"),
        node("Range", ["zero", "four", "one"], ["r"], "range"),
        node("Cast", ["r"], ["c"], "cast", to=_FLOAT),
        node("Add", ["m", "c"], ["y"], "add"),
    ]
    arrays = {"sizes": np.array([3, 4]), "zero": np.array(0), "four": np.array(4)}
    return _net(nodes, arrays | {"one": np.array(1)}, ["batch", 3])


NETS: dict[str, Callable[[], onnx.ModelProto]] = {
    made.__name__.removeprefix("_"): made
    for made in (_mlp, _cnn, _images, _lstm, _gru, _attention, _choices, _sequence, _volume, _loose)
}
