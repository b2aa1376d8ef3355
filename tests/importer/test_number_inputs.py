"""Scalar inputs: giving a value makes them constants, and an If on them is folded."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import ModelError, UsageError
from edgetrain.exporters.parity import parity

from .models import info, node

onnxruntime = pytest.importorskip("onnxruntime")

X = np.random.default_rng(1).standard_normal((6, 4)).astype("f")
Y = np.array([0, 1, 2, 0, 1, 2], np.int32)
KINDS = {"float": TensorProto.FLOAT, "int": TensorProto.INT64, "bool": TensorProto.BOOL}


def _branch(name, factor):
    nodes = [node("MatMul", "h w", f"{name}_p"), node("Mul", f"{name}_p {name}_f", f"{name}_y")]
    constant = numpy_helper.from_array(np.float32(factor), f"{name}_f")
    return helper.make_graph(nodes, name, [], [info(f"{name}_y", "N", 3)], [constant])


@pytest.fixture
def path(tmp_path):
    """y = (scale * x) @ w, times 2 if sr is 16000, else 3; `flip` swaps the two cases."""
    arrays = {"w": np.random.default_rng(0).standard_normal((4, 3)).astype("f")}
    arrays["rate"] = np.array(16000)
    nodes = [
        node("Mul", "x scale", "h"),
        node("Equal", "sr rate", "same"),
        node("Xor", "same flip", "which"),
        helper.make_node(
            "If", ["which"], ["y"], then_branch=_branch("a", 2), else_branch=_branch("b", 3)
        ),
    ]
    inputs = [
        info("sr", kind=KINDS["int"]),
        info("x", "N", 4),
        info("scale"),
        info("flip", kind=KINDS["bool"]),
    ]
    held = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", "N", 3)], held)
    imports = [helper.make_opsetid("", 17)]
    place = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), place)
    return place


def _feeds(sr, flip):
    return {"sr": np.array(sr), "scale": np.array(0.5, "f"), "flip": np.array(flip)}


@pytest.mark.parametrize(("sr", "flip"), [(16000, False), (8000, False), (8000, True)])
def test_value_of_an_input_folds_what_follows(sr, flip, path, tmp_path):
    feeds = _feeds(sr, flip)
    values = {"sr": sr, "scale": 0.5, "flip": flip}
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": X, **feeds})
    found = et.forward(path, {"x": X, **feeds})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    found = et.forward(path, {"x": X, **values})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    program = et.compile(path, minibatch=6, inputs=values)
    trainer = et.Trainer(program)
    np.testing.assert_allclose(trainer.predict(X), expected, rtol=1e-5)
    trainer.step(X, Y)
    out = trainer.export_onnx(tmp_path / "out.onnx")
    (after,) = onnxruntime.InferenceSession(out).run(None, {"x": X, **feeds})
    np.testing.assert_allclose(trainer.predict(X), after, rtol=1e-5)
    et.api.verify(program)
    assert et.plan(path, minibatch=6, inputs=values)["feasible"]
    value, grads = et.loss_and_gradients(path, {"x": X, **feeds}, Y)
    other, _ = et.loss_and_gradients(path, {"x": X, **values}, Y)
    assert value == other
    assert {*grads} == {"w"}


def test_parity_takes_values_of_inputs(path):
    assert parity(path, inputs={"x": X, **_feeds(16000, False)}, target=Y).ok


ARGUMENTS = ["--input", "sr=16000", "--input", "scale=0.5", "--input", "flip=false"]


@pytest.mark.parametrize("command", ["plan", "inspect"])
def test_commands_take_values_of_inputs(command, path, capsys):
    assert main([command, str(path), *ARGUMENTS]) == 0
    capsys.readouterr()


def test_input_without_a_value_is_refused_with_the_option(path):
    with pytest.raises(ModelError, match=r"'sr'.*--input sr=VALUE"):
        et.compile(path)


WRONG = {
    "no input": ({"nobody": 1}, "nobody"),
    "free dimensions": ({"x": 1}, "free dimensions"),
    "a fraction": ({"sr": 0.5}, "whole number"),
    "no number": ({"sr": "many"}, "sr"),
}


@pytest.mark.parametrize("case", WRONG)
def test_value_that_does_not_fit_is_refused(case, path):
    values, words = WRONG[case]
    with pytest.raises(UsageError, match=words):
        et.compile(path, inputs=values)


def test_a_scalar_that_only_another_output_reads_needs_no_value(tmp_path):
    nodes = [node("MatMul", "x w", "z"), node("Mul", "z temperature", "y")]
    inputs, w = [info("x", "N", 4), info("temperature")], np.ones((4, 3), np.float32)
    held = [numpy_helper.from_array(w, "w")]
    outputs = [info("z", "N", 3), info("y", "N", 3)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, held),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    assert et.loss_and_gradients(model, {"x": X}, Y, output="z")[0] == pytest.approx(np.log(3))
    with pytest.raises(ModelError, match="'temperature': it is a scalar and has no value"):
        et.loss_and_gradients(model, {"x": X}, Y, output="y")
