"""Large tensors stay in the file, and are read as arrays equal to protobuf's."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.errors import ModelError
from edgetrain.importer import lean
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse

from ..fuzz.children import run
from .models import info, model, node, tensor

ROWS, COLUMNS = 64, 128  # 32 KiB of float32
SHAPE = (ROWS, COLUMNS)
NUMBERS = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def _kept(kind: str) -> TensorProto:
    if kind == "floats":
        return helper.make_tensor("big", TensorProto.FLOAT, SHAPE, NUMBERS.ravel())
    if kind == "bfloat16":
        raw = (NUMBERS.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return TensorProto(name="big", data_type=TensorProto.BFLOAT16, dims=SHAPE, raw_data=raw)
    return numpy_helper.from_array(NUMBERS.astype(kind), "big")


def _made(where: str, kind: str = "float32") -> onnx.ModelProto:
    big, use = _kept(kind), [node("Cast", "big", "b", to=1), node("MatMul", "h b", "y")]
    use = use if kind not in ("float32", "floats") else [node("MatMul", "h big", "y")]
    begin = node("MatMul", "x w", "h")
    if where == "weight":
        return model([begin, *use], [tensor("w", 4, ROWS), big])
    constant = helper.make_node("Constant", [], ["big"], value=big)
    if where == "constant":
        return model([begin, constant, *use], [tensor("w", 4, ROWS)])
    if where == "function":
        opsets = [helper.make_opsetid("", 17)]
        made = helper.make_function("local", "F", ["h"], ["y"], [constant, *use], opsets)
        proto = model(
            [begin, helper.make_node("F", ["h"], ["y"], domain="local")], [tensor("w", 4, ROWS)]
        )
        proto.functions.add().CopyFrom(made)
        proto.opset_import.add(domain="local", version=1)
        return proto
    inner = [*use[:-1], node("MatMul", f"h {use[-1].input[1]}", "t")]
    parts = {
        "then_branch": helper.make_graph([constant, *inner], "t", [], [info("t")]),
        "else_branch": helper.make_graph(
            [node("MatMul", "h big", "e")], "e", [], [info("e")], [_kept("float32")]
        ),
    }
    yes = numpy_helper.from_array(np.array(True), "c")
    branch = helper.make_node("If", ["c"], ["y"], "if", **parts)
    return model([begin, branch], [tensor("w", 4, ROWS), yes])


PLACES = [("weight", k) for k in ("float32", "float64", "float16", "bfloat16", "floats", "int64")]
PLACES += [
    (where, k) for where in ("constant", "function", "branch") for k in ("float32", "float16")
]


@pytest.mark.parametrize(("where", "kind"), PLACES)
def test_large_data_are_read_from_the_file(where, kind, tmp_path):
    path, proto = tmp_path / "m.onnx", _made(where, kind)
    data = proto.SerializeToString()
    path.write_bytes(data)
    with open(path, "rb") as file:
        assert len(lean.read_lean(file.fileno(), "m")) < 2**13 < len(data)
    found, expected = et.load_onnx(path), decode(parse(data, "m"), path)
    assert found.parameters == expected.parameters
    assert found.initializers.keys() == expected.initializers.keys()
    for name, array in expected.initializers.items():
        assert found.initializers[name].dtype == array.dtype
        np.testing.assert_array_equal(found.initializers[name], array)
    assert onnx.ModelProto.FromString(found.weightless) == onnx.ModelProto.FromString(
        expected.weightless
    )
    inputs = {"x": np.ones((2, 4), np.float32)}
    np.testing.assert_array_equal(et.forward(found, inputs)["y"], et.forward(expected, inputs)["y"])


def test_data_in_two_rows_are_left_to_protobuf(tmp_path):
    """The last data field counts, so neither field may be read directly."""
    proto, row = _made("weight"), TensorProto(raw_data=NUMBERS[::-1].tobytes())
    big = proto.graph.initializer[1].SerializeToString() + row.SerializeToString()
    graph = proto.graph
    del graph.initializer[1]
    inner = graph.SerializeToString() + b"\x2a" + lean._varint(len(big)) + big
    proto.ClearField("graph")
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString() + b"\x3a" + lean._varint(len(inner)) + inner)
    np.testing.assert_array_equal(et.load_onnx(path).initializers["big"], NUMBERS[::-1])


def test_file_that_is_large_besides_its_data_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lean, "MAX_LEAN_NBYTES", 2**20)
    proto = _made("weight")
    proto.graph.doc_string = "a" * 2**20
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"m\.onnx: more than 1048576 bytes"):
        et.load_onnx(tmp_path / "m.onnx")


def test_numbers_kept_one_by_one_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(lean, "MAX_NUMBERS", 1000)
    nodes = [
        node("MatMul", "x w", "h"),
        helper.make_node("Transpose", ["h"], ["y"], perm=[1] * 2000),
    ]
    (tmp_path / "m.onnx").write_bytes(model(nodes, [tensor("w", 4, 4)]).SerializeToString())
    with pytest.raises(ModelError, match=r"m\.onnx: 2000 numbers .*at most 1000"):
        et.load_onnx(tmp_path / "m.onnx")


def _large(path: Path, nbytes: int, use: str) -> None:
    """Write a model whose one large tensor is a hole in the file."""
    rows = nbytes // (4 * COLUMNS)
    big = TensorProto(name="big", data_type=TensorProto.FLOAT, dims=[rows, COLUMNS])
    nodes = [node("Gather", "big x", "y")] if use == "table" else [node("MatMul", "x big", "y")]
    kind = TensorProto.INT64 if use == "table" else TensorProto.FLOAT
    dims = ["batch", 4] if use == "table" else ["batch", rows]
    proto = model(nodes, [big], inputs=[info("x", *dims, kind=kind)], outputs=[info("y")])
    graph = proto.graph.SerializeToString()
    tensor_bytes = big.SerializeToString()
    field = b"\x4a" + lean._varint(nbytes)
    inside = tensor_bytes + field
    before, after = graph.split(tensor_bytes)
    before = before[: before.rindex(b"\x2a")]
    inner = before + b"\x2a" + lean._varint(len(inside) + nbytes) + inside
    proto.ClearField("graph")
    head = (
        proto.SerializeToString() + b"\x3a" + lean._varint(len(inner) + nbytes + len(after)) + inner
    )
    with open(path, "wb") as file:
        file.write(head)
        file.seek(nbytes, 1)
        file.write(after)


def test_half_a_gigabyte_of_weights_is_loaded_once(tmp_path):
    """Protobuf, the checker and a copy without weights once held the weights too: 2.8 GB."""
    nbytes = 500 * 2**20
    _large(tmp_path / "m.onnx", nbytes, "weight")
    ended = run(lambda: [int(et.load_onnx(tmp_path / "m.onnx").initializers["big"].nbytes)])
    assert ended.value == [nbytes], ended
    assert ended.grown_nbytes < 1.5 * nbytes and ended.cpu_seconds < 10


@pytest.mark.parametrize(("use", "said"), [("weight", "needs .* at most"), ("table", "at most")])
def test_gigabytes_of_weights_are_refused_unread(use, said, tmp_path):
    _large(tmp_path / "m.onnx", 3 * 2**29, use)
    ended = run(lambda: et.load_onnx(tmp_path / "m.onnx"))
    assert ended.how == "refused" and "m.onnx: " in ended.detail
    assert ended.grown_nbytes < 2**26 and ended.cpu_seconds < 2
