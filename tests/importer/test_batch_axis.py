"""Which axis of an input is the batch: what dimensions tell, and when the graph must decide."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.bundle.texts import _layout
from edgetrain.cli import main
from edgetrain.compiler.compilation import Compilation
from edgetrain.errors import DataError, ModelError, UsageError
from edgetrain.exporters import export_torch
from edgetrain.ops.batch_axis import axes_of, readings
from edgetrain.ops.model import InputSpec

# Input dimensions, given sizes and axes -> possible readings, the likeliest first.
READINGS = [
    ([["batch", 5, 3]], {}, {}, [(0,)]),
    ([["batch", 5, 3], [2, "batch", 6]], {}, {}, [(0, 1)]),
    ([[2, "N", 6], ["N", 5, 3]], {}, {}, [(1, 0)]),
    ([["K", 5, 3], [2, "K", 6]], {}, {}, [(0, 1)]),
    ([["time", "batch", 3]], {}, {}, [(1,)]),
    ([["T", "N", 3], [1, "N", 6]], {}, {}, [(1, 1)]),
    ([["batch", "T"], ["batch", "T"]], {}, {}, [(0, 0)]),
    ([["batch", "seq"], [2, "batch", 8], [2, "batch", 8]], {}, {}, [(0, 1, 1)]),
    ([["N", 3], ["M", 4]], {}, {}, [(0, 0)]),  # different names, as some exporters write
    ([["N", 3], [2, "M", 4]], {}, {}, [(0, 1)]),
    ([[None, 3], [2, None, 4]], {}, {}, [(0, 1)]),
    ([["N", "N"], ["N", 3]], {}, {}, [(0, 0)]),
    # An axis with a given size is not the batch, unless its name says so.
    ([["s0", "s1", 3]], {"s0": 5}, {}, [(1,)]),
    ([["batch", "T"]], {"batch": 2}, {}, [(0,)]),
    # Two names without meaning: both are tried, the first axis first.
    ([["s0", "s1", 3]], {}, {}, [(0,), (1,)]),
    ([[1, "T", 3]], {}, {}, [(0,), (1,)]),
    # Numbers: a size that all inputs share.
    ([[4, 5, 3], [2, 4, 6]], {}, {}, [(0, 1)]),
    ([[2, 5, 3], [2, 2, 6]], {}, {}, [(0, 0), (0, 1)]),
    ([[2, 5, 3], [2, 2, 6]], {}, {"h": 1}, [(0, 1)]),
    ([[4, 3]], {}, {}, [(0,), (1,)]),
    ([[4, 3], [5, 2]], {}, {}, []),
    # The option overrides names.
    ([["s0", "s1", 3]], {}, {"x": 1}, [(1,)]),
]


@pytest.mark.parametrize(("dims", "sizes", "given", "expected"), READINGS)
def test_readings_of_dimensions(dims, sizes, given, expected) -> None:
    names = ["x", "h", "c"]
    specs = [InputSpec(name, tuple(own)) for name, own in zip(names, dims, strict=False)]
    assert readings(specs, sizes, given) == expected


class Gru(nn.Module):
    def __init__(self, batch_first: bool, layers: int = 2) -> None:
        super().__init__()
        self.net, self.l = nn.GRU(3, 6, layers, batch_first=batch_first), nn.Linear(6, 2)

    def forward(self, x, h):
        return self.l(self.net(x, h)[0])


class Alone(Gru):
    def forward(self, x):
        return self.l(self.net(x)[0])


# File with numeric dimensions -> module, shapes, the only reading that keeps samples apart.
NUMBERS = {
    "sizes say it": (lambda: Gru(True), [(4, 5, 3), (2, 4, 6)], (0, 1)),
    "as many layers as samples": (lambda: Gru(True), [(2, 5, 3), (2, 2, 6)], (0, 1)),
    "one sample, one layer": (lambda: Gru(True, 1), [(1, 5, 3), (1, 1, 6)], (0, 1)),
    "steps first": (lambda: Alone(False), [(5, 4, 3)], (1,)),
    "as many steps as samples": (lambda: Gru(False), [(4, 4, 3), (2, 4, 6)], (1, 1)),
    "the first axis": (lambda: Alone(True), [(4, 5, 3)], (0,)),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_file_of_numbers_has_the_reading_that_keeps_samples_apart(kind, tmp_path: Path) -> None:
    make, shapes, axes = NUMBERS[kind]
    torch.manual_seed(0)
    net, path = make(), tmp_path / "net.onnx"
    inputs = [torch.randn(shape) for shape in shapes]
    export_torch(net, inputs, path, batch_dim=None)
    model = et.load_onnx(path)
    assert axes_of(Compilation(model, make_options(loss="mse")).prepared.laid_out) == axes
    given = {spec.name: x.numpy() for spec, x in zip(model.inputs, inputs, strict=True)}
    out = net(*inputs)
    loss = (out**2).mean()
    loss.backward()
    target = np.zeros(out.shape, np.float32)
    found, gradients = et.loss_and_gradients(model, given, target, loss="mse")
    assert found == pytest.approx(loss.item(), rel=2e-6)
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(gradients[name], parameter.grad, 2e-5, 2e-6, err_msg=name)


def product(dims_a, dims_b, path: Path) -> Path:
    """y = w * (sum of a over axis 0) * b, elementwise: samples stay apart on any axis."""
    arrays = [numpy_helper.from_array(np.full((), 2, np.float32), "w")]
    arrays.append(numpy_helper.from_array(np.array([0]), "axes"))
    nodes = [
        helper.make_node("ReduceSum", ["a", "axes"], ["s"], keepdims=0),
        helper.make_node("Mul", ["s", "b"], ["p"]),
        helper.make_node("Mul", ["p", "w"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("a", dims_a), ("b", dims_b))
    ]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])]
    graph = helper.make_graph(nodes, "net", infos, outs, arrays)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(proto, {"edgetrain.parameters": '["w"]'})
    path.write_bytes(proto.SerializeToString())
    return path


def test_numbers_with_several_readings_are_refused_and_the_option_decides(tmp_path, capsys) -> None:
    path = product([2, 4, 4], [4, 4], tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=re.escape("--batch-axis a=2 --batch-axis b=1")) as error:
        et.compile(path, loss="mse", minibatch=4)
    assert '"a": 2' in str(error.value) and "axis 1 or 2 of input 'a' [2, 4, 4]" in str(error.value)
    draw = np.random.default_rng(0)
    a, b = draw.random((2, 6, 4), np.float32), draw.random((6, 4), np.float32)
    for axes, way in (
        ((1, 0), lambda array: array),
        ((2, 1), lambda array: array.swapaxes(-1, -2)),
    ):
        chosen = dict(zip("ab", axes, strict=True))
        program = et.compile(path, loss="mse", minibatch=6, microbatch=3, batch_axis=chosen)
        assert program.recipe["batch_axis"] == chosen
        edge = program.save(tmp_path / "m.edge")
        trainer = et.Trainer(edge)
        found = trainer.predict({"a": way(a), "b": way(b)})
        np.testing.assert_allclose(found, way(2 * a.sum(0) * b), 1e-6)
        trainer.close()
        assert main(["inspect", str(edge), "--verify"]) == 0
    given = ["--batch-axis", "a=1", "--batch-axis", "b=0"]
    assert main(["plan", str(path), "--loss", "mse", "--minibatch", "4", *given]) == 0
    assert "samples: axis 1 of input a; axis 0 of" in capsys.readouterr().out


def test_inputs_without_a_size_in_common_are_refused(tmp_path: Path) -> None:
    path = product([2, 5, 4], [3, 6], tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"'a' \[2, 5, 4\], 'b' \[3, 6\].*--batch-axis a=0"):
        et.compile(path, loss="mse")


def test_an_option_for_another_input_or_axis_is_refused(tmp_path: Path) -> None:
    path = product([2, "batch", 4], ["batch", 4], tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="batch axis z=0: no such input.* a, b"):
        et.compile(path, loss="mse", batch_axis={"z": 0})
    with pytest.raises(UsageError, match="batch axis a=3: the input has 3 dimensions"):
        et.compile(path, loss="mse", batch_axis={"a": 3})
    with pytest.raises(UsageError, match="batch_axis: a 'x': expected a whole number"):
        et.compile(path, loss="mse", batch_axis={"a": "x"})


def test_the_size_of_the_batch_has_one_rule_and_one_message(tmp_path: Path) -> None:
    """On any axis: no size is required for the batch, and a given one is refused."""
    path = product([2, "batch", "width"], ["batch", "width"], tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="dimension 2 .'width'. has no size.*--dim width=SIZE"):
        et.plan(path, loss="mse")
    assert et.plan(path, loss="mse", dims={"width": 4})["minibatch"] == 32
    for sizes in ({"batch": 2}, {"batch": 2, "width": 4}):
        with pytest.raises(UsageError, match=r"this is the batch \(axis . of input .*--minibatch"):
            et.plan(path, loss="mse", dims=sizes)


def test_arrays_in_another_layout_are_refused_by_shape(tmp_path: Path) -> None:
    path = product([2, "batch", 4], ["batch", 4], tmp_path / "m.onnx")
    a, b = np.ones((2, 3, 4), np.float32), np.ones((3, 4), np.float32)
    program = et.compile(path, loss="mse", minibatch=3)
    slot = program.inputs["micro"][0]
    assert "the model's [2, n, 4] without axis 1" in _layout(slot)
    trainer = et.Trainer(program)
    turned = {"a": a.swapaxes(0, 1), "b": b}
    with pytest.raises(DataError, match=r"'a' has shape \[3, 2, 4\].*\[2, n, 4\] for several"):
        trainer.step(turned, b)
    with pytest.raises(DataError, match=r"\[3, 2, 4\].*\[2, n, 4\]"):
        trainer.predict(turned)
    trainer.close()
    with pytest.raises(DataError, match=r"'a' has shape \[3, 4\].*axis 1"):
        et.loss_and_gradients(path, {"a": b, "b": b}, b, loss="mse")


def test_inspect_says_which_axis_counts_samples(tmp_path: Path, capsys) -> None:
    path = product([2, "batch", 4], ["batch", 4], tmp_path / "m.onnx")
    assert main(["inspect", str(path), "--loss", "mse"]) == 0
    out = capsys.readouterr().out
    assert "input a: float [2, batch, 4], samples along axis 1\n" in out
    assert "input b: float [batch, 4]\n" in out
