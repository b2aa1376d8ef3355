"""Files that are not models, or hostile: refused by name, quickly, in little memory."""

import gzip
import os
import pickle
import re
import zipfile

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.cli import main
from edgetrain.compiler.bind import bind
from edgetrain.compiler.compilation import Compilation
from edgetrain.errors import ModelError

from ..fuzz.children import run
from .models import info, linear, model, node, tensor

BATCH = ["batch", 4]


def _zip(path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", b"weights")


# File contents -> what the message says about them.
OTHERS = {
    "empty": (b"", "the file is empty"),
    "zip": (_zip, "a zip archive.* torch.save"),
    "gzip": (gzip.compress(b"model"), "compressed by gzip.*Unpack it"),
    **{
        f"pickle {protocol}": (pickle.dumps({"w": 1}, protocol), "a Python pickle")
        for protocol in range(2, 6)
    },
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "page": (b"\n<!DOCTYPE html><html></html>", "a web page"),
    "json": (b'{"weights": []}', "a text file"),
    "text": (b"weights\tof a model\n" * 9, "a text file"),
    "safetensors": (b"\x40\0\0\0\0\0\0\0" + b'{"w":{}}', "a safetensors file"),
    "numpy": (b"\x93NUMPY\x01\0", "a numpy array"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    "tflite": (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
    "noise": (bytes(np.random.default_rng(0).integers(0, 256, 999, np.uint8)), "not an ONNX file"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_load_says_what_a_file_is_that_is_no_model(name, tmp_path):
    path, (made, said) = tmp_path / "m.onnx", OTHERS[name]
    path.write_bytes(made) if isinstance(made, bytes) else made(path)
    with pytest.raises(ModelError, match=rf"m\.onnx: .*{said}"):
        et.load_onnx(path)


def test_load_refuses_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "folder.onnx").mkdir()
    for name, said in (("pipe", "a FIFO"), ("folder", "a directory")):
        with pytest.raises(ModelError, match=rf"{name}\.onnx: it is {said}"):
            et.load_onnx(tmp_path / f"{name}.onnx")
    with pytest.raises(ModelError, match="/dev/zero: it is a device"):
        et.load_onnx("/dev/zero")
    with pytest.raises(ModelError, match="contains a null byte; expected"):
        et.load_onnx("a\0b.onnx")


def _length(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


GIGABYTES = 1_900_000_000
HEADS = {
    "zeros": b"",
    "a version": b"\x08\x08",
    "a graph of zeros": b"\x08\x08\x3a" + _length(GIGABYTES - 8),
    "a tensor": b"\x08\x08\x3a" + _length(GIGABYTES - 8) + b"\x2a" + _length(GIGABYTES - 14),
    "a node": b"\x08\x08\x3a" + _length(GIGABYTES - 8) + b"\x0a" + _length(GIGABYTES - 14),
}


@pytest.mark.parametrize("name", HEADS)
def test_load_refuses_gigabytes_without_reading_them(name, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(HEADS[name])
    os.truncate(path, GIGABYTES)
    ended = run(lambda: et.load_onnx(path))
    assert ended.how == "refused" and f"{path}: not an ONNX file" in ended.detail
    assert ended.grown_nbytes < 2**24 and ended.cpu_seconds < 2


def _proto(nodes=None, arrays=None, given=None, made=None, opsets=(("", 17),), functions=()):
    graph = helper.make_graph(
        nodes or [node("MatMul", "x w", "y")], "g", [given or info("x", *BATCH)],
        [made or info("y", "batch", 3)], [tensor("w", 4, 3)] if arrays is None else arrays,
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*o) for o in opsets], ir_version=8,
        functions=list(functions),
    )  # fmt: skip


INTEGERS = numpy_helper.from_array(np.ones((4, 3), np.int64), "w")
WORDS = helper.make_tensor("s", TensorProto.STRING, [1], [b"word"])
REFUSED = {
    "strings": (
        _proto([node("MatMul", "x w", "h"), node("Add", "h s", "y")], [tensor("w", 4, 3), WORDS]),
        "'s'",
    ),
    "input of strings": (_proto(given=info("x", *BATCH, kind=TensorProto.STRING)), "string"),
    "input of nothing": (_proto(given=info("x", *BATCH, kind=0)), "undefined"),
    "input of type 77": (_proto(given=info("x", *BATCH, kind=77)), "type 77"),
    "two opsets": (_proto(opsets=(("", 17), ("", 13))), "opsets 17 and 13 "),
    "two names of a domain": (_proto(opsets=(("", 17), ("ai.onnx", 9))), "opsets 17 and 9"),
    "negative dimension": (_proto(given=info("x", "batch", -4)), "dimension 1 is -4"),
    "zero dimension": (_proto(given=info("x", "batch", 0)), "dimension 1 is 0"),
    "negative batch": (_proto(given=info("x", -2, 4)), "dimension 0 is -2"),
    "integer weight": (_proto(arrays=[INTEGERS]), "are float and int64"),
    "integer input": (_proto(given=info("x", *BATCH, kind=TensorProto.INT64)), "int64 and float"),
    "integer output": (_proto(made=info("y", "batch", 3, kind=TensorProto.INT64)), "output 'y'"),
    "real indices": (_proto([node("Gather", "w x", "y")]), "is float; expected int32 or int64"),
    "weight and input differ": (
        _proto([node("Relu", "w", "y")], given=info("w", 4, 3, kind=TensorProto.INT64)),
        "input 'w': declared as int64",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_files_end_with_status_4_and_their_name(name, tmp_path, capsys):
    made, said = REFUSED[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    assert main(["plan", str(path), "--loss", "mse", "--minibatch", "2"]) == 4
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert str(path) in line and re.search(said, line)


def _function(name: str, nodes, branch=()):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["a"], ["b"], [*nodes, *branch], opsets)


def _call(name: str, given="a", made="b"):
    return helper.make_node(name, [given], [made], domain="local")


def _branches(name: str) -> list:
    def graph(made, inner):
        return helper.make_graph([inner], made, [], [info(made, "batch", 4)])

    return [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["c"], ["b"], then_branch=graph("t", _call(name, made="t")),
                         else_branch=graph("e", helper.make_node("Relu", ["a"], ["e"]))),
    ]  # fmt: skip


def _nested(levels: int, width: int) -> list:
    def inner(k):
        name = f"f{k + 1}" if k + 1 < levels else "Relu"
        names = ["a", *(f"t{j}" for j in range(width - 1)), "b"]
        made = [
            helper.make_node(
                name, [names[j]], [names[j + 1]], domain="local" if k + 1 < levels else ""
            )
            for j in range(width)
        ]
        return _function("f" if k == 0 else f"f{k}", made)

    return [inner(k) for k in range(levels)]


FUNCTIONS = {
    "itself": ([_function("f", [_call("f")])], r"'f' calls itself \(f -> f\)"),
    "by another": ([_function("f", [_call("g")]), _function("g", [_call("f")])],
                   r"calls itself \(f -> g -> f\)"),
    "in a branch": ([_function("f", _branches("f"))], r"'f' calls itself"),
    "deep": (_nested(3000, 1), "more than 256 deep"),
    "wide": (_nested(40, 2), "expand to more than"),
    "twice": ([_function("f", [node("Relu", "a", "b")])] * 2, "'f' is defined twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_cannot_be_expanded_are_refused(name, tmp_path):
    functions, said = FUNCTIONS[name]
    nodes = [_call("f", "x", "h"), node("MatMul", "h w", "y")]
    made = _proto(nodes, opsets=(("", 17), ("local", 1)), functions=functions)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    ended = run(lambda: et.load_onnx(tmp_path / "m.onnx"))
    assert ended.how == "refused" and ended.cpu_seconds < 10
    assert re.search(rf"m\.onnx: .*{said}", ended.detail), ended.detail


def test_functions_in_functions_are_expanded(tmp_path):
    nodes = [_call("f", "x", "h"), node("MatMul", "h w", "y")]
    made = _proto(nodes, opsets=(("", 17), ("local", 1)), functions=_nested(20, 1))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    assert [n.op_type for n in et.load_onnx(tmp_path / "m.onnx").nodes] == ["Relu", "MatMul"]


def _chain(count: int, kind: str):
    """A chain of nodes; each kind could take quadratic time in a different way."""
    names = {"named": "n{}", "same name": "n", "nameless": ""}
    made, before = [node("MatMul", "x w", "h")], "h"
    for k in range(count):
        after = "y" if k == count - 1 else f"v{k}"
        given = [before, "h"] if kind == "one reader" and k % 2 else [before]
        op = "Add" if len(given) == 2 else "Flatten" if kind == "views" else "Relu"
        made.append(helper.make_node(op, given, [after], names.get(kind, "n{}").format(k)))
        before = after
    return model(made, [tensor("w", 4, 4)], outputs=[info("y", "batch", 4)])


@pytest.mark.parametrize("kind", ["named", "same name", "nameless", "one reader", "views"])
def test_graphs_are_built_in_linear_time(kind, tmp_path):
    """Views of views, and equal names, once took over 30 seconds for 4,000 nodes."""
    (tmp_path / "m.onnx").write_bytes(_chain(4000, kind).SerializeToString())

    def build() -> None:
        from edgetrain.api import make_options
        from edgetrain.compiler.pipeline import build_graphs

        options = make_options(loss="mse", minibatch=2)
        build_graphs(Compilation(et.load_onnx(tmp_path / "m.onnx"), options), 2)

    ended = run(build)
    assert ended.how == "returned", ended
    assert ended.cpu_seconds < 12


@pytest.mark.parametrize("kind", ["same name", "one reader"])
def test_hundred_thousand_nodes_are_loaded_or_refused_soon(kind, tmp_path):
    (tmp_path / "m.onnx").write_bytes(_chain(100_000, kind).SerializeToString())

    def load() -> int:
        loaded = et.load_onnx(tmp_path / "m.onnx")
        with pytest.raises(ModelError, match=r"m\.onnx: 100001 nodes; .* 20000"):
            bind(loaded, 2)
        return len(loaded.nodes)

    ended = run(load)
    assert ended.value == 100_001, ended
    assert ended.cpu_seconds < 10


def test_ten_thousand_weights_are_loaded_soon(tmp_path):
    """Sets of all weights were once made anew for each weight: 12.5 seconds."""
    weights = [tensor(f"w{k}", 4, 4) for k in range(10_000)]
    values = ["x", *(f"h{k}" for k in range(1, 10_000)), "y"]
    nodes = [
        node("MatMul", f"{values[k]} w{k}", values[k + 1], name=f"n{k}") for k in range(10_000)
    ]
    made = model(nodes, weights, outputs=[info("y", "batch", 4)])
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    ended = run(lambda: len(et.load_onnx(tmp_path / "m.onnx").parameters))
    assert ended.value == 10_000, ended
    assert ended.cpu_seconds < 8


def test_message_of_a_node_is_short_however_much_it_names(tmp_path):
    nodes = [
        node("MatMul", "x w", "h"),
        helper.make_node("Split", ["h"], [f"s{k}" for k in range(3000)], "split", axis=1),
        helper.make_node("Relu", ["s0"], ["y"], "relu"),
    ]
    (tmp_path / "m.onnx").write_bytes(
        model(nodes, [tensor("w", 4, 4)], outputs=[info("y", "batch", 1)]).SerializeToString()
    )
    with pytest.raises(ModelError, match="node 'split'") as caught:
        bind(et.load_onnx(tmp_path / "m.onnx"), 2)
    assert len(str(caught.value)) < 800


def test_linear_model_still_loads(tmp_path):
    (tmp_path / "m.onnx").write_bytes(linear().SerializeToString())
    assert et.load_onnx(tmp_path / "m.onnx").source == str(tmp_path / "m.onnx")
