"""Parity's first part: edgetrain's forward pass against an ONNX runtime on the file itself."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.exporters import export_torch, onnx_reference, parity_file
from edgetrain.exporters.parity import parity
from edgetrain.exporters.parity_file import OwnFile
from edgetrain.exporters.parity_forward import error_of

from ..importer import quantised_nets

_FLOAT, _INT, _HALF = TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT16
node = helper.make_node


def _draw(*shape: int) -> np.ndarray:
    return (np.random.default_rng(shape).standard_normal(shape) * 0.4).astype(np.float32)


def _save(path: Path, nodes, arrays, inputs, outputs, opset=17, **how) -> Path:
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path), **how)
    return path


_HEAD = {"w": _draw(6, 3)}
_X, _Y = ("x", _FLOAT, ["n", 6]), ("y", _FLOAT, ["n", 3])


def _training_norm(path: Path) -> Path:
    """One batch-norm applied twice in training mode, and dropout in training mode.

    The second application reads the statistics that the first one updates.
    """
    nodes = [
        node("BatchNormalization", ["x", "s", "b", "m", "v"], ["a", "m1", "v1"], training_mode=1),
        node("BatchNormalization", ["a", "s", "b", "m1", "v1"], ["c", "m2", "v2"], training_mode=1),
        node("Dropout", ["c", "half", "yes"], ["d"]),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    arrays = {"s": 1 + _draw(6), "b": _draw(6), "m": _draw(6), "v": 1 + _draw(6) ** 2}
    arrays |= {"half": np.float32(0.5), "yes": np.array(True)} | _HEAD
    moved = [("m2", _FLOAT, [6]), ("v2", _FLOAT, [6])]
    return _save(path, nodes, arrays, [_X], [_Y, *moved])


def _several(path: Path) -> Path:
    """Tokens of a named length, flags and floats in; floats, a second head and classes out."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"]), node("ReduceMean", ["e"], ["q"], axes=[1]),
        node("Squeeze", ["q", "one"], ["p"]), node("Add", ["p", "x"], ["z"]),
        node("Where", ["flag", "z", "x"], ["h"]), node("MatMul", ["h", "w"], ["y"]),
        node("MatMul", ["h", "v"], ["second"]), node("ArgMax", ["second"], ["class"], axis=1),
    ]  # fmt: skip
    arrays = {"table": _draw(11, 6), "v": _draw(6, 4), "one": np.array([1])} | _HEAD
    inputs = [("ids", _INT, ["n", "length"]), _X, ("flag", TensorProto.BOOL, ["n", 6])]
    outputs = [_Y, ("second", _FLOAT, ["n", 4]), ("class", _INT, ["n", 1])]
    return _save(path, nodes, arrays, inputs, outputs)


def _external(path: Path) -> Path:
    nodes = [node("MatMul", ["x", "u"], ["h"]), node("MatMul", ["h", "w"], ["y"])]
    how = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    return _save(path, nodes, {"u": _draw(6, 6), **_HEAD}, [_X], [_Y], **how)


def _half(path: Path) -> Path:
    nodes = [node("MatMul", ["x", "u"], ["h"]), node("Sigmoid", ["h"], ["y"])]
    inputs, outputs = [("x", _HALF, ["n", 6])], [("y", _HALF, ["n", 3])]
    return _save(path, nodes, {"u": _draw(6, 3).astype(np.float16)}, inputs, outputs)


def _described(path: Path) -> Path:
    """A weight that is ConstantOfShape in the file, and random in edgetrain."""
    nodes = [node("ConstantOfShape", ["sizes"], ["u"]), node("MatMul", ["x", "u"], ["y"])]
    return _save(path, nodes, {"sizes": np.array([6, 3])}, [_X], [_Y])


def _fixed(path: Path) -> Path:
    """A file that only takes two samples."""
    nodes = [node("Reshape", ["x", "to"], ["r"]), node("MatMul", ["r", "w"], ["y"])]
    arrays = {"to": np.array([2, 6])} | _HEAD
    return _save(path, nodes, arrays, [("x", _FLOAT, [2, 2, 3])], [("y", _FLOAT, [2, 3])])


FILES = {
    "training mode": (_training_norm, ["y"], {}),
    "several": (_several, ["y", "second", "class"], {"dims": {"length": 5}, "output": "y"}),
    "external": (_external, ["y"], {}),
    "fp16": (_half, ["y"], {"loss": "mse"}),
    "described": (_described, ["y"], {}),
    "fixed batch": (_fixed, ["y"], {"microbatch": 2}),
}


@pytest.mark.parametrize("name", FILES)
def test_forward_of_the_file_is_compared(name, tmp_path):
    make, outputs, options = FILES[name]
    report = parity(make(tmp_path / "net.onnx"), steps=1, **options)
    rows = [row for row in report.rows if row.kind == "forward"]
    assert [row.name for row in rows] == outputs
    assert report.ok and report.rows[: len(rows)] == tuple(rows)
    assert report.facts["forward_reference"].startswith("onnxruntime ")
    assert report.facts["forward_notes"] == []


# Ops that may overwrite their input.
LAST = {
    "Abs": (["y"], {}), "Add": (["y", "b"], {}), "Softmax": (["y"], {}),
    "CumSum": (["y", "one"], {}), "BatchNormalization": (["y", "b", "c", "m", "v"], {}),
    "LayerNormalization": (["y", "b"], {}),
}  # fmt: skip


@pytest.mark.parametrize("op", LAST)
@pytest.mark.parametrize("through", ["", "Reshape"])
def test_forward_keeps_an_output_that_the_last_node_reads(op, through, tmp_path):
    operands, attrs = LAST[op]
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node(through, ["h", "to"], ["y"]) if through else node("Mul", ["h", "v"], ["y"]),
        node(op, operands, ["z"], **attrs),
    ]
    arrays = _HEAD | {"b": _draw(3), "v": 1 + _draw(3) ** 2, "one": np.array(1)}
    outputs = [("z", _FLOAT, ["n", 3]), _Y]
    arrays |= {"to": np.array([-1, 3]), "c": _draw(3), "m": _draw(3)}
    path = _save(tmp_path / "net.onnx", nodes, arrays, [_X], outputs)
    report = parity(path, steps=1, loss="mse", allow_constants=True)
    found = {r.name: r.ok for r in report.rows if r.kind == "forward"}
    assert found == {"z": True, "y": True}


def test_moved_file_keeps_constants_that_its_runtime_checks(tmp_path):
    """Resize rejects a batch scale of nearly 1; one of nearly 2 changes the shape."""
    nodes = [node("Mul", ["x", "w"], ["h"]), node("Resize", ["h", "", "scales"], ["y"])]
    arrays = {"w": _draw(1, 2), "scales": np.array([1, 1, 2], np.float32)}
    shapes = [("x", _FLOAT, ["n", 1, 2])], [("y", _FLOAT, ["n", 1, 4])]
    file = OwnFile(et.load_onnx(_save(tmp_path / "net.onnx", nodes, arrays, *shapes)))
    x = {"x": _draw(5, 1, 2)}
    right = file.run(x)
    draw = np.random.default_rng(0)
    errors = [error_of(file.moved(x, right, draw)["y"], right["y"]) for _ in range(8)]
    assert max(errors) < 1e-6 and any(errors) and not file.problems


def test_forward_is_not_compared_with_a_reference_that_pads_otherwise(tmp_path, monkeypatch):
    """onnx.reference ignores auto_pad in MaxPool; onnxruntime rejects a negative total padding."""
    nodes = [
        node("Mul", ["x", "w"], ["h"]),
        node("MaxPool", ["h"], ["y"], auto_pad="SAME_LOWER", kernel_shape=[2], strides=[4]),
    ]
    shapes = [("x", _FLOAT, ["n", 1, 5])], [("y", _FLOAT, ["n", 1, 2])]
    path = _save(tmp_path / "net.onnx", nodes, {"w": _draw(1, 5)}, *shapes)
    assert parity(path, steps=1, loss="mse").facts["forward_reference"].startswith("onnxruntime ")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    report = parity(path, steps=1, loss="mse")
    assert report.ok and report.facts["forward_reference"] is None
    assert any("MaxPool" in note for note in report.facts["forward_notes"])


@pytest.mark.parametrize("way", ["channel", "unsigned operators", "dynamic"])
def test_forward_of_a_quantised_file_is_compared(way, tmp_path):
    report = parity(quantised_nets.quantised(way, tmp_path), steps=1)
    assert report.ok and report.rows[0].kind == "forward"


class _Standardised(nn.Module):
    """Two layers of equal width; a batch-norm without running statistics scales their weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))

    def forward(self, x):
        for weight in (self.first, self.second):
            rows = F.batch_norm(weight[None], None, None, training=True)
            x = torch.relu(x @ rows[0].T)
        return x


def test_forward_of_norms_without_statistics_is_compared_as_they_run(tmp_path):
    """torch's exporter starts the second one with the statistics that the first one leaves."""
    path = export_torch(_Standardised(), (torch.randn(3, 4),), tmp_path / "net.onnx")
    report = parity(path, steps=1, loss="mse")
    assert report.ok and report.rows[0].kind == "forward", report.summary()


def test_forward_is_not_compared_with_sums_that_saturate(tmp_path, monkeypatch):
    """Like onnxruntime's sums of 8-bit products on processors without VNNI instructions."""
    monkeypatch.setattr(parity_file, "_saturates", lambda: True)
    report = parity(quantised_nets.quantised("dynamic", tmp_path), steps=1)
    assert report.ok and report.facts["forward_reference"].startswith("onnx.reference ")
    assert "saturate at 16 bits on this processor" in report.facts["forward_notes"][0]


def _classifier(path: Path) -> Path:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.LeakyReLU(0.2))
    whole = nn.Sequential(net, nn.Flatten(), nn.Linear(64, 3))
    return export_torch(whole, (torch.randn(2, 2, 6, 6),), path)


# Attribute in the file -> a wrong value that a faulty importer might read.
FAULTS = {
    "BatchNormalization": {"epsilon": 1e-3},
    "Gelu": {"approximate": "tanh"},
    "LeakyRelu": {"alpha": 0.21},
}


@pytest.mark.parametrize("op", FAULTS)
def test_forward_finds_what_the_importer_gets_wrong(op, tmp_path, monkeypatch):
    """Gradients agree anyway: the reference runs the imported graph."""
    from edgetrain.importer import decode

    path, read = _classifier(tmp_path / "net.onnx"), decode._node
    assert parity(path, steps=1).ok

    def misread(proto, *args):
        found = read(proto, *args)
        return replace(found, attrs=found.attrs | FAULTS.get(found.op_type == op and op, {}))

    monkeypatch.setattr(decode, "_node", misread)
    report = parity(path, steps=1)
    first = report.first
    assert (first.kind, first.step, report.ok) == ("forward", 0, False)
    summary = report.summary()
    assert f"forward {first.name!r}" in summary and "onnxruntime" in summary
    assert all(row.ok for row in report.rows if row.kind == "gradient")


def _add_half(monkeypatch, output: str = "y") -> None:
    """Make the engine's forward pass wrong."""
    from edgetrain.exporters import parity_forward

    right = parity_forward.forward

    def wrong(*args, **options):
        return {n: a + 0.5 * (n == output) for n, a in right(*args, **options).items()}

    monkeypatch.setattr(parity_forward, "forward", wrong)


def test_forward_names_the_first_output_that_departs(tmp_path, monkeypatch):
    path = _several(tmp_path / "net.onnx")
    _add_half(monkeypatch, "second")
    report = parity(path, steps=1, dims={"length": 5}, output="y")
    assert [r.name for r in report.rows if not r.ok] == ["second"]
    found = json.loads(json.dumps(report.to_json()))
    assert (found["ok"], found["first_departure"]["name"]) == (False, "second")
    assert found["worst"]["forward"]["name"] == "second"


def test_forward_is_compared_with_onnx_reference_without_onnxruntime(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    report = parity(_several(tmp_path / "net.onnx"), steps=1, dims={"length": 5}, output="y")
    assert report.ok and report.facts["forward_reference"].startswith("onnx.reference ")
    assert report.facts["forward_notes"] == ["onnxruntime is not installed"]
    report.print(console := Console(width=400, record=True, file=io.StringIO()))
    text = console.export_text()
    assert "onnx.reference" in text and "onnxruntime is not installed" in text


@pytest.mark.parametrize("opset", [9, 13, 14, 17])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_ops_that_onnx_reference_computes_otherwise_are_put_right(rank, opset, tmp_path):
    """GlobalMaxPool on ranks other than 4, BatchNormalization before opset 14."""
    shape = [6, 3, 4, 5, 2][:rank]
    nodes = [
        node("BatchNormalization", ["x", "s", "b", "m", "v"], ["h"], epsilon=0.01),
        node("GlobalMaxPool", ["h"], ["y"]),
    ]
    arrays = {"s": 1 + _draw(3), "b": _draw(3), "m": _draw(3), "v": 1 + _draw(3) ** 2}
    outputs = [("h", _FLOAT, shape), ("y", _FLOAT, [6, 3, *[1] * (rank - 2)])]
    path = _save(tmp_path / "net.onnx", nodes, arrays, [("x", _FLOAT, shape)], outputs, opset)
    x = {"x": _draw(*shape)}
    expected = ort.InferenceSession(str(path)).run(None, x)
    for found, right in zip(onnx_reference.run(onnx.load(path), x), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [1, 2])
def test_norms_of_onnx_reference_are_of_magnitudes(p, tmp_path):
    nodes = [node("LpNormalization", ["x"], ["y"], axis=1, p=p)]
    shape = ("x", _FLOAT, [5, 6]), ("y", _FLOAT, [5, 6])
    path = _save(tmp_path / "net.onnx", nodes, {}, [shape[0]], [shape[1]])
    x = {"x": _draw(5, 6)}
    (expected,) = ort.InferenceSession(str(path)).run(None, x)
    np.testing.assert_allclose(onnx_reference.run(onnx.load(path), x)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("inputs", [["x", "w"], ["x", "w", "b"]])
def test_groups_of_onnx_references_transposed_convolutions_have_their_own_weights(inputs, tmp_path):
    nodes = [node("ConvTranspose", inputs, ["y"], group=3, strides=[2, 1], pads=[0, 1, 1, 0])]
    arrays = {"w": _draw(6, 2, 3, 2), "b": _draw(6)}
    arrays = {name: arrays[name] for name in inputs[1:]}
    shapes = ("x", _FLOAT, [2, 6, 4, 5]), ("y", _FLOAT, [2, 6, 8, 5])
    path = _save(tmp_path / "net.onnx", nodes, arrays, [shapes[0]], [shapes[1]])
    x = {"x": _draw(2, 6, 4, 5)}
    (expected,) = ort.InferenceSession(str(path)).run(None, x)
    (found,) = onnx_reference.run(onnx.load(path), x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_forward_says_what_is_not_compared(tmp_path, monkeypatch):
    """An output of random numbers; a file that neither runtime accepts; no file."""
    nodes = [node("RandomNormalLike", ["x"], ["r"]), node("MatMul", ["r", "w"], ["z"])]
    nodes += [node("MatMul", ["x", "w"], ["y"])]
    outputs = [_Y, ("z", _FLOAT, ["n", 3])]
    path = _save(tmp_path / "net.onnx", nodes, _HEAD, [_X], outputs)
    report = parity(path, steps=1, output="y")
    assert [r.name for r in report.rows if r.kind == "forward"] == ["y"] and report.ok
    assert report.facts["forward_notes"] == ["output 'z' is random, so it is not compared"]
    model = et.load_onnx(path)
    path.unlink()
    facts = parity(model, steps=1, output="y").facts
    assert facts["forward_reference"] is None and len(facts["forward_notes"]) == 1


def test_forward_is_judged_in_a_file_with_masks_of_the_smallest_number(tmp_path, monkeypatch):
    """One position sees nothing; a unit in the last place of its mask is a huge number."""
    mask = np.zeros((3, 3), np.float32)
    mask[2] = np.finfo(np.float32).min
    nodes = [
        node("MatMul", ["x", "w"], ["q"]), node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["q", "k"], ["scores"]), node("Add", ["scores", "mask"], ["seen"]),
        node("Softmax", ["seen"], ["a"], axis=-1), node("MatMul", ["a", "x"], ["y"]),
    ]  # fmt: skip
    shapes = [("x", _FLOAT, ["n", 3, 4])], [("y", _FLOAT, ["n", 3, 4])]
    path = _save(tmp_path / "net.onnx", nodes, {"w": _draw(4, 4), "mask": mask}, *shapes)
    options = {"steps": 1, "loss": "mse", "minibatch": 2}
    assert parity(path, **options).ok
    _add_half(monkeypatch)
    first = parity(path, **options).first
    assert (first.kind, first.name) == ("forward", "y") and first.tolerance < 1e-3


def test_forward_names_an_output_that_roundings_decide(tmp_path, monkeypatch):
    nodes = [
        node("MatMul", ["x", "w"], ["y"]), node("Mul", ["y", "many"], ["turns"]),
        node("Cos", ["turns"], ["z"]),
    ]  # fmt: skip
    outputs = [_Y, ("z", _FLOAT, ["n", 3])]
    arrays = _HEAD | {"many": np.float32(1e8)}
    path = _save(tmp_path / "net.onnx", nodes, arrays, [_X], outputs)
    _add_half(monkeypatch, "z")
    report = parity(path, steps=1, output="y")
    judged = {r.name: r.tolerance is not None for r in report.rows if r.kind == "forward"}
    assert report.ok and judged == {"y": True, "z": False}
    notes = report.facts["forward_notes"]
    assert notes == ["output 'z' depends on roundings, so it is not judged"]


def test_forward_errors_are_relative_and_strict_about_what_is_not_finite():
    inf, nan = np.inf, np.nan
    for found, true, error in [
        ([1.0, 2.0], [1.0, 2.5], 0.2), ([nan, 1.0], [nan, 1.0], 0.0), ([1.0, 1.0], [nan, 1.0], inf),
        ([inf, 1.0], [inf, 2.0], 0.5), ([-inf], [inf], inf), ([inf], [1.0], inf), ([], [], 0.0),
    ]:  # fmt: skip
        assert error_of(np.array(found), np.array(true)) == error, (found, true)
    assert error_of(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])) == 0.25
    assert error_of(np.zeros((2, 1)), np.zeros(2)) == inf


def test_parity_takes_the_models_that_compile_takes(tmp_path):
    path = _save(tmp_path / "net.onnx", [node("MatMul", ["x", "w"], ["y"])], _HEAD, [_X], [_Y])
    report = parity(onnx.load(path), steps=1)
    assert report.ok and report.facts["forward_reference"] is None
    with pytest.raises(et.UsageError, match="model 3: expected the path of an ONNX file"):
        parity(3)
