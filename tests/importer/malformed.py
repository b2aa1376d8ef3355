"""Malformed models by name, as a careless or hostile exporter might write them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

X = "x"
_FLOAT = TensorProto.FLOAT


def tensor(name: str, array) -> TensorProto:
    """Make an initializer; floats become float32."""
    array = np.asarray(array)
    return numpy_helper.from_array(
        array.astype(np.float32) if array.dtype.kind == "f" else array, name
    )


def model(nodes, inits=(), shape=("batch", 4, 8, 8), opset=17, outputs=("y",), rank=None):
    """Nodes from input x to the outputs, after a trained scale, so that something is trained."""
    rank = len(shape) if rank is None else rank
    info = [helper.make_tensor_value_info(X, _FLOAT, list(shape))]
    outs = [helper.make_tensor_value_info(name, _FLOAT, [None] * rank) for name in outputs]
    graph = helper.make_graph(list(nodes), "bad", info, outs, list(inits))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return made.SerializeToString()


def one(op, inits=(), shape=("batch", 4, 8, 8), opset=17, outputs=("y",), **attrs) -> bytes:
    """One node; its inputs after the first are the arrays `inits` (None: absent)."""
    names = [X, *("" if a is None else f"w{k}" for k, a in enumerate(inits))]
    made = [tensor(f"w{k}", a) for k, a in enumerate(inits) if a is not None]
    return model([helper.make_node(op, names, list(outputs), "bad", **attrs)], made, shape, opset)


def _weight(*shape) -> np.ndarray:
    return np.full(shape, 0.1, np.float32)


W = _weight(6, 4, 3, 3)


def _conv() -> dict[str, bytes]:
    odd = {
        "group 0": {"group": 0}, "group 3": {"group": 3}, "negative group": {"group": -1},
        "kernel shape": {"kernel_shape": [5, 5]}, "stride 0": {"strides": [0, 1]},
        "negative stride": {"strides": [-1, 1]}, "three strides": {"strides": [1, 1, 1]},
        "dilation 0": {"dilations": [0, 1]}, "wide dilation": {"dilations": [9, 9]},
        "negative pads": {"pads": [-1, 0, 0, 0]}, "three pads": {"pads": [1, 1, 1]},
        "huge pads": {"pads": [2**40, 0, 0, 0]}, "auto pad": {"auto_pad": "SOMEHOW"},
    }  # fmt: skip
    out = {f"conv {name}": one("Conv", [W], **attrs) for name, attrs in odd.items()}
    out["conv channels"] = one("Conv", [_weight(6, 3, 3, 3)])
    out["conv rank"] = one("Conv", [_weight(6, 4, 3)])
    out["conv 4-D"] = one("Conv", [_weight(6, 4, *[3] * 4)], ("batch", 4, *[8] * 4))
    out["conv bias"] = one("Conv", [W, _weight(5)])
    out["conv window"] = one("Conv", [_weight(6, 4, 9, 9)])
    return out


def _transposed() -> dict[str, bytes]:
    w = _weight(4, 6, 3, 3)
    odd = {
        "group 0": {"group": 0}, "group 3": {"group": 3}, "stride 0": {"strides": [0, 1]},
        "output padding": {"output_padding": [-1, 0]}, "pads": {"pads": [9, 9, 9, 9]},
        "output shape": {"output_shape": [2**40, 2**40]},
    }  # fmt: skip
    out = {f"transposed {name}": one("ConvTranspose", [w], **attrs) for name, attrs in odd.items()}
    out["transposed channels"] = one("ConvTranspose", [_weight(5, 6, 3, 3)])
    return out


def _pool() -> dict[str, bytes]:
    return {
        "pool kernel": one("MaxPool", kernel_shape=[9, 9]),
        "pool kernel 0": one("MaxPool", kernel_shape=[0, 2]),
        "pool stride 0": one("MaxPool", kernel_shape=[2, 2], strides=[0, 1]),
        "pool rank": one("AveragePool", kernel_shape=[2, 2, 2]),
        "pool pads": one("AveragePool", kernel_shape=[2, 2], pads=[-1, 0, 0, 0]),
        "pool huge": one("MaxPool", kernel_shape=[2, 2], pads=[2**40] * 4),
    }


def _linear() -> dict[str, bytes]:
    flat = ("batch", 8)
    return {
        "gemm inner": one("Gemm", [_weight(7, 3)], flat),
        "gemm rank": one("Gemm", [_weight(8, 3)]),
        "gemm C": one("Gemm", [_weight(8, 3), _weight(5)], flat),
        "matmul inner": one("MatMul", [_weight(7, 3)], flat),
        "matmul batch": one("MatMul", [_weight(3, 4, 8, 8)]),
        "matmul scalar": one("MatMul", [np.float32(1)], flat),
        "einsum letters": one("Einsum", [_weight(8, 3)], flat, equation="bi,jk,kl->bl"),
        "einsum sizes": one("Einsum", [_weight(7, 3)], flat, equation="bi,ij->bj"),
        "einsum output": one("Einsum", [_weight(8, 3)], flat, equation="bi,ij->bz"),
    }


def _shapes() -> dict[str, bytes]:
    flat, big = ("batch", 8), np.array([2**20, 2**20, 4])
    return {
        "reshape two unknown": one("Reshape", [np.array([-1, -1])], flat),
        "reshape indivisible": one("Reshape", [np.array([3, -1])], flat),
        "reshape negative": one("Reshape", [np.array([-2, 8])], flat),
        "reshape huge": one("Reshape", [np.array([2**31, 2**31])], flat),
        "transpose twice": one("Transpose", perm=[0, 1, 1, 2]),
        "transpose short": one("Transpose", perm=[0, 1]),
        "transpose far": one("Transpose", perm=[0, 1, 2, 9]),
        "squeeze wide": one("Squeeze", [np.array([1])], flat),
        "squeeze far": one("Squeeze", [np.array([9])], flat),
        "unsqueeze twice": one("Unsqueeze", [np.array([1, 1])], flat),
        "flatten far": one("Flatten", axis=9),
        "slice step 0": one("Slice", [np.array([0]), np.array([2]), np.array([1]), np.array([0])]),
        "slice axes": one("Slice", [np.array([0]), np.array([2]), np.array([9])]),
        "slice lengths": one("Slice", [np.array([0, 0]), np.array([2])]),
        "slice nothing": one("Slice", [np.array([5]), np.array([5]), np.array([1])]),
        "split sizes": one("Split", [np.array([3, 3])], axis=1, outputs=("y", "z")),
        "concat axis": one("Concat", [_weight(1, 4, 8, 8)], axis=9),
        "concat sizes": one("Concat", [_weight(1, 4, 7, 8)], axis=1),
        "expand sizes": one("Expand", [np.array([1, 3, 8, 8])]),
        "expand huge": one("Expand", [big], ("batch", 1, 1)),
        "tile huge": one("Tile", [np.array([1, 2**40])], flat),
        "tile negative": one("Tile", [np.array([1, -1])], flat),
        "tile count": one("Tile", [np.array([1])], flat),
        "pad huge": one("Pad", [np.array([0, 2**40, 0, 0])], flat),
        "pad all away": one("Pad", [np.array([0, -4, 0, -4])], flat),
        "pad count": one("Pad", [np.array([0, 1])], flat),
        "pad mode": one("Pad", [np.array([0, 1, 0, 1])], flat, mode="mirror"),
        "pad reflect": one("Pad", [np.array([0, 2**40, 0, 0])], flat, mode="reflect"),
        "gather index": one("Gather", [np.array([9])], flat, axis=1),
        "gather axis": one("Gather", [np.array([0, 1])], flat, axis=9),
        "depth 0": one("DepthToSpace", blocksize=0),
        "depth indivisible": one("DepthToSpace", blocksize=3),
        "space indivisible": one("SpaceToDepth", blocksize=3),
    }


def _elements() -> dict[str, bytes]:
    flat = ("batch", 8)
    none = np.zeros(0, np.float32)
    image = ("batch", 4, 8, 8)
    return {
        "add sizes": one("Add", [_weight(7)], flat),
        "prelu sizes": one("PRelu", [_weight(7)], flat),
        "where sizes": one("Where", [_weight(8), _weight(7)], flat),
        "softmax axis": one("Softmax", shape=flat, axis=9),
        "reduce axis": one("ReduceMean", shape=flat, opset=13, axes=[9]),
        "dropout ratio": one("Dropout", [np.float32(1.5)], flat),
        "lrn size": one("LRN", shape=image, size=0),
        "batch-norm": one("BatchNormalization", [_weight(5)] * 4),
        "layer-norm": one("LayerNormalization", [_weight(5)]),
        "cumsum axis": one("CumSum", [np.array(9)], flat),
        "cast type": one("Cast", shape=flat, to=99),
        "trilu rank": one("Trilu", shape=("batch",)),
        "resize negative": one("Resize", [none, np.float32([1, 1, -2, 2])]),
        "resize nan": one("Resize", [none, np.float32([1, 1, np.nan, 2])]),
        "resize count": one("Resize", [none, np.float32([1, 1, 2])]),
        "resize huge": one("Resize", [none, np.float32([1, 1, 1e9, 1e9])]),
        "resize nothing": one("Resize", [none, none, np.array([1, 4, 0, 8])]),
        "resize coordinates": one(
            "Resize", [none, np.float32([1, 1, 2, 2])], coordinate_transformation_mode="sideways"
        ),
        "upsample count": one("Upsample", [np.float32([1, 2])], opset=9),
        "unsupported op": one("NonMaxSuppression", [_weight(1, 1, 8)], flat),
        "unknown op": one("Frobnicate", shape=flat),
    }


def _structure() -> dict[str, bytes]:
    relu, flat = helper.make_node("Relu", [X], ["y"], "r"), ("batch", 8)
    node = helper.make_node
    cycle = [node("Add", [X, "b"], ["a"], "a"), node("Add", [X, "a"], ["b"], "b"),
             node("Relu", ["b"], ["y"], "r")]  # fmt: skip
    fill = [node("ConstantOfShape", ["s"], ["w"], "fill"), node("Add", [X, "w"], ["y"], "add")]
    steps = [node("Range", ["a", "b", "c"], ["r"], "range"), node("Add", [X, "r"], ["y"], "add")]
    runtime = [
        node("Shape", [X], ["s"]),
        node("Relu", [X], ["t"]),
        node("Reshape", [X, "t"], ["y"]),
    ]
    text = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"])
    short = TensorProto(name="w", data_type=_FLOAT, dims=[8], raw_data=b"1234")
    minus = TensorProto(name="w", data_type=_FLOAT, dims=[-8], raw_data=b"")
    strange = TensorProto(name="w", data_type=99, dims=[1], raw_data=b"1")
    vast = TensorProto(name="w", data_type=_FLOAT, dims=[2**40, 2**40])
    add = [node("Add", [X, "w"], ["y"], "add")]
    matmul = [node("MatMul", [X, "w"], ["y"], "m")]
    nan = tensor("w", np.full((8, 8), np.nan))
    return {
        "no nodes": model([], shape=flat),
        "cycle": model(cycle, shape=flat),
        "undefined": model([node("Add", [X, "nowhere"], ["y"])], shape=flat),
        "output missing": model([node("Relu", [X], ["z"])], shape=flat),
        "made twice": model([relu, node("Abs", [X], ["y"])], shape=flat),
        "opset 999": model([relu], shape=flat, opset=999),
        "opset 1": model([relu], shape=flat, opset=1),
        "other domain": model([node("Relu", [X], ["y"], "r", domain="com.example")], shape=flat),
        "missing attribute": model([node("Concat", [X, X], ["y"])], shape=flat),
        "missing input": model([node("Conv", [X], ["y"])]),
        "scalar input": model([relu], shape=()),
        "huge input": model([relu], shape=("batch", 2**40, 2**20)),
        "fill huge": model(fill, [tensor("s", np.array([10**12]))], flat),
        "fill negative": model(fill, [tensor("s", np.array([-1]))], flat),
        "range huge": model(steps, [tensor(n, np.array(v)) for n, v in
                                    (("a", 0), ("b", 10**12), ("c", 1))], flat),
        "range step 0": model(steps, [tensor(n, np.array(v)) for n, v in
                                      (("a", 0), ("b", 8), ("c", 0))], flat),
        "shape of values": model(runtime, shape=flat),
        "strings": model(add, [text], flat),
        "short data": model(add, [short], flat),
        "negative size": model(add, [minus], flat),
        "element type": model(add, [strange], flat),
        "vast tensor": model(add, [vast], flat),
        "nan weight": model(matmul, [nan], flat),
        "inf weight": model(matmul, [tensor("w", np.full((8, 8), np.inf))], flat),
        "deep branches": _nested(24),
        "runtime condition": _conditional(),
    }  # fmt: skip


def _branch(name: str, nodes) -> onnx.GraphProto:
    out = helper.make_tensor_value_info(f"{name}o", _FLOAT, None)
    return helper.make_graph(nodes, name, [], [out])


def _nested(depth: int) -> bytes:
    inner = [helper.make_node("Relu", [X], ["n0o"])]
    for k in range(1, depth):
        part = _branch(f"n{k - 1}", inner)
        other = _branch(f"e{k}", [helper.make_node("Abs", [X], [f"e{k}o"])])
        inner = [helper.make_node("If", ["c"], [f"n{k}o"], then_branch=part, else_branch=other)]
    nodes = [*inner, helper.make_node("Relu", [f"n{depth - 1}o"], ["y"])]
    return model(nodes, [tensor("c", np.array(True))], ("batch", 8))


def _conditional() -> bytes:
    then = _branch("t", [helper.make_node("Relu", [X], ["to"])])
    other = _branch("e", [helper.make_node("Abs", [X], ["eo"])])
    nodes = [
        helper.make_node("ReduceSum", [X], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    return model(nodes, [tensor("zero", np.float32(0))], ("batch", 8))


def _bytes() -> dict[str, bytes]:
    whole = one("Conv", [W])
    return {
        "empty file": b"",
        "text": b"<html>not found</html>",
        "zeros": b"\0" * 4096,
        "archive": b"PK\x03\x04" + b"\7" * 500,
        "cut at 10": whole[:10],
        "cut in half": whole[: len(whole) // 2],
        "cut at the end": whole[:-1],
        "length beyond": b"\x3a\xff\xff\xff\xff\x0f" + whole,
    }


def _external() -> dict[str, dict[str, str]]:
    """External data entries for a weight of 256 bytes; data.bin next to the model has 64."""
    return {
        "external missing": {"location": "nowhere.bin"},
        "external absolute": {"location": "/etc/hostname"},
        "external outside": {"location": "../data.bin"},
        "external short": {"location": "data.bin"},
        "external offset": {"location": "data.bin", "offset": "1000000"},
        "external negative": {"location": "data.bin", "offset": "-4"},
        "external number": {"location": "data.bin", "offset": "many"},
        "external folder": {"location": "."},
        "external link": {"location": "link.bin"},
        "external nameless": {},
    }


def _external_model(entries: dict[str, str]) -> bytes:
    weight = TensorProto(name="w", data_type=_FLOAT, dims=[8, 8])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    return model([helper.make_node("MatMul", [X, "w"], ["y"], "m")], [weight], ("batch", 8))


_FAMILIES: tuple[Callable[[], dict[str, bytes]], ...] = (
    _conv, _transposed, _pool, _linear, _shapes, _elements, _structure, _bytes,
)  # fmt: skip


def write_all(folder: Path) -> dict[str, Path]:
    """Write every malformed model; return name -> path."""
    (folder / "data.bin").write_bytes(b"\0" * 64)
    (folder / "link.bin").symlink_to("/etc/hostname")
    made = {name: data for family in _FAMILIES for name, data in family().items()}
    made |= {name: _external_model(entries) for name, entries in _external().items()}
    paths = {}
    for name, data in made.items():
        paths[name] = folder / f"{name.replace(' ', '_')}.onnx"
        paths[name].write_bytes(data)
    return paths
