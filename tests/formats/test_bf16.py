"""bfloat16 from the command to the trained file: what numpy lacks, through the codec."""

from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.exporters.parity import parity
from edgetrain.formats import decoded
from tests.compiler.nets import Net


def model():
    """Two layers: [batch, 6] -> [batch, 3]."""
    net = Net(6)
    hidden = net.add("MatMul", ["x", net.weight("one", 6, 8)], "h")
    net.add("MatMul", [net.add("Tanh", [hidden], "t"), net.weight("two", 8, 3)], "y")
    return net.model("y")


def test_loss_and_gradients_are_those_of_rounded_values():
    report = parity(model(), precision="bf16", steps=2, batch=6)
    assert report.ok, report.summary()


@pytest.mark.parametrize("given", [{"precision": "bf16"}, {"model_memory": "bf16"}])
def test_a_run_trains_resumes_and_exports(given, tmp_path: Path):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((64, 6)).astype(np.float32)
    y = (x[:, :3].argmax(1)).astype(np.int64)
    program = et.compile(model(), minibatch=16, microbatch=8, optimizer=et.SGD(lr=0.3), **given)
    whole = et.Trainer(program, (x, y), tmp_path / "whole")
    whole.fit(epochs=8)
    parts = et.Trainer(program, (x, y), tmp_path / "parts", save_steps=1)
    parts.fit(epochs=4)
    parts.close()
    parts = et.Trainer(program, (x, y), tmp_path / "parts")
    assert parts.resume()
    parts.fit(epochs=8)
    try:
        for name, array in whole.session.state().items():
            assert array.tobytes() == parts.session.state()[name].tobytes()
        assert whole.evaluate((x, y))["accuracy"] > 0.8
        whole.export_onnx(tmp_path / "trained.onnx")
        exported = et.load_onnx(tmp_path / "trained.onnx")
        weight = decoded(whole.session.state()["one"]).astype(np.float32)
        np.testing.assert_array_equal(exported.initializers["one"], weight)
    finally:
        whole.close()
        parts.close()
