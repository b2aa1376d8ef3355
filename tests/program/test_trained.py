"""The trained ONNX predicts what the session predicts, under the original names."""

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import edgetrain as et
from edgetrain.api import verify
from edgetrain.cli import main
from edgetrain.errors import ProgramError
from edgetrain.exporters import export_torch
from edgetrain.program import Program, Slot
from edgetrain.program.trained import export_trained, write_initial
from examples.zoo import ZOO
from tests.exporters.exported import attribute, initializers, nodes
from tests.importer.plain_nets import EXPORTERS, NETS, exported
from tests.quick import slow_between, slow_except, slow_unless
from tests.twins import train_step
from tests.zoo_files import zoo_file

from .naive_trained import export_trained as naive_trained

LIGHT = sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))
# fp32 against fp32 in other summation orders, over a few dozen layers
_TOLERANCE = 1e-4


class _Net(nn.Module):
    """Batch-norm, dropout, a table of positions, and a second head that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.4)
        self.head, self.other = nn.Linear(20, 5), nn.Linear(20, 2)
        self.register_buffer("positions", torch.arange(20).reshape(1, 4, 5) / 10, persistent=False)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))) + self.positions
        x = self.dropout(x).flatten(1)
        return self.head(x), self.other(x)


def _trained(path, inputs, target, steps=3, **options):
    """A session after a few steps on one batch."""
    size = len(target)
    program = et.compile(et.load_onnx(path), minibatch=size, microbatch=size, **options)
    session = et.Session(program)
    for step in range(steps):
        for slot in program.inputs["micro"]:
            session.arena.view(slot)[...] = inputs[slot.name]
        session.arena.view(program.targets["micro"])[...] = target
        train_step(session, step, 0.05, 1.0, [True])
    return program, session


def _run(path, inputs) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: inputs[value.name] for value in session.get_inputs()})


def _zoo_model(name):
    entry = ZOO[name]
    torch.manual_seed(0)
    path = zoo_file(name)
    tensors = entry.example_inputs(8, "small")
    names = [spec.name for spec in et.load_onnx(path).inputs]
    inputs = {n: t.numpy() for n, t in zip(names, tensors, strict=True)}
    return path, inputs, entry.target(8, "small").numpy()


@pytest.mark.parametrize("name", ["keyword", "resnet18", "transformer_encoder"])
def test_trained_model_predicts_in_onnxruntime_what_the_session_does(name, tmp_path):
    path, inputs, target = _zoo_model(name)
    program, session = _trained(path, inputs, target)
    try:
        out = export_trained(program, session.state(), tmp_path / "trained.onnx")
        expected = session.predict(inputs)
        state = {n: a.copy() for n, a in session.state().items()}
    finally:
        session.close()
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    found = initializers(model)
    original = initializers(onnx.load(path))
    for slot in program.persistent:
        if slot.role in ("parameter", "buffer"):
            np.testing.assert_array_equal(found[slot.name], state[slot.name])
            assert found[slot.name].dtype == original[slot.name].dtype
    np.testing.assert_allclose(_run(out, inputs)[0], expected, atol=_TOLERANCE, rtol=_TOLERANCE)


def test_trained_model_can_be_trained_again(tmp_path):
    path, inputs, target = _zoo_model("keyword")
    program, session = _trained(path, inputs, target)
    session.close()
    out = export_trained(program, session.state(), tmp_path / "trained.onnx")
    again, before = et.load_onnx(out), et.load_onnx(path)
    assert (again.parameters, again.buffers) == (before.parameters, before.buffers)
    loss, gradients = et.loss_and_gradients(again, inputs, target)
    assert np.isfinite(loss) and set(gradients) == set(before.parameters)


def _exported_net(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "net.onnx"
    export_torch(_Net(), torch.randn(4, 3, 5), path, input_names=["x"])
    draw = np.random.default_rng(0)
    return path, draw.standard_normal((8, 3, 5), np.float32), draw.integers(0, 5, 8)


def test_export_trained_sets_inference_and_keeps_constants(tmp_path):
    path, x, target = _exported_net(tmp_path)
    program, session = _trained(path, {"x": x}, target)
    expected = session.predict({"x": x})
    session.close()
    out = export_trained(program, session.state(), tmp_path / "trained.onnx")
    model = onnx.load(out)
    (norm,) = nodes(model, "BatchNormalization")
    assert len(norm.output) == 1 and "training_mode" not in [a.name for a in norm.attribute]
    assert [len(node.input) for node in nodes(model, "Dropout")] == [2]
    np.testing.assert_allclose(_run(out, {"x": x})[0], expected, atol=_TOLERANCE)
    assert attribute(norm, "epsilon") == pytest.approx(1e-5)
    assert len(model.graph.output) == 2


def test_export_trained_leaves_out_outputs_whose_weights_are_not_in_the_state(tmp_path):
    path, x, target = _exported_net(tmp_path)
    program, session = _trained(path, {"x": x}, target, steps=0)
    session.close()
    state = {n: a for n, a in session.state().items() if not n.startswith("other")}
    model = onnx.load(export_trained(program, state, tmp_path / "trained.onnx"))
    assert len(model.graph.output) == 1 and "other.weight" not in initializers(model)


def test_export_trained_keeps_the_dtype_of_the_file_when_fp16_was_stored(tmp_path):
    path, x, target = _exported_net(tmp_path)
    program, session = _trained(path, {"x": x}, target, precision="fp16")
    session.close()
    out = export_trained(program, session.state(), tmp_path / "trained.onnx")
    assert {a.dtype for n, a in initializers(onnx.load(out)).items() if "." in n} == {
        np.dtype(np.float32)
    }


def test_export_trained_writes_weights_beside_the_model_when_they_are_large(tmp_path):
    path, inputs, target = _zoo_model("resnet18")
    program, session = _trained(path, inputs, target, steps=1)
    session.close()
    inline = export_trained(program, session.state(), tmp_path / "inline.onnx")
    out = export_trained(
        program, session.state(), tmp_path / "trained.onnx", inline_limit_nbytes=10_000
    )
    assert (tmp_path / "trained.onnx.data").stat().st_size > 10_000
    np.testing.assert_array_equal(_run(out, inputs)[0], _run(inline, inputs)[0])
    assert et.load_onnx(out).parameters == et.load_onnx(path).parameters


def test_export_trained_refuses_a_state_of_another_program(tmp_path):
    path, x, target = _exported_net(tmp_path)
    program, session = _trained(path, {"x": x}, target, steps=0)
    session.close()
    state = session.state()
    with pytest.raises(ProgramError, match=r"'head\.bias': its trained shape is \[6\]; .*\[5\]"):
        export_trained(program, {**state, "head.bias": np.zeros(6)}, tmp_path / "out.onnx")
    without = {n: a for n, a in state.items() if not n.endswith("bias")}
    with pytest.raises(ProgramError, match="is missing in the state"):
        export_trained(program, without, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def _program(model):
    """A Program with the parts of `model` that the writer reads, and a random state."""
    draw = np.random.default_rng(0)
    names = [*model.parameters, *model.buffers]
    state = {n: draw.normal(size=model.initializers[n].shape).astype(np.float32) for n in names}
    roles = {n: "parameter" if n in model.parameters else "buffer" for n in names}
    slots = tuple(Slot(n, 0, a.shape, "f32", roles[n]) for n, a in state.items())
    fields = {f.name: None for f in dataclasses.fields(Program)}
    fields |= {
        "persistent": slots,
        "mapped": (),
        "init": {},
        "recipe": {},
        "onnx": model.weightless,
    }
    return Program(**{**fields, "model_name": model.name}), state


def _assert_as_onnx_writes_it(path, tmp_path):
    program, state = _program(et.load_onnx(path))
    ours, theirs = tmp_path / "ours" / "m.onnx", tmp_path / "theirs" / "m.onnx"
    for out in (ours, theirs):
        out.parent.mkdir()
    for limit in (10**9, 1500):
        export_trained(program, state, ours, inline_limit_nbytes=limit)
        naive_trained(program, state, theirs, inline_limit_nbytes=limit)
        assert sorted(p.name for p in ours.parent.iterdir()) == sorted(
            p.name for p in theirs.parent.iterdir()
        )
        for file in ours.parent.iterdir():
            assert file.read_bytes() == (theirs.parent / file.name).read_bytes()
    onnx.checker.check_model(ours, full_check=True)


LARGE = ("densenet", "dynamic_conv", "inception_v3", "light_conv", "resnet50", "vgg19", "vgg19_bn")


@pytest.mark.parametrize("name", slow_unless(sorted(ZOO), lambda name: name not in LARGE))
def test_trained_model_is_byte_for_byte_what_onnx_writes(name, tmp_path):
    _assert_as_onnx_writes_it(_zoo_model(name)[0], tmp_path)


_TYPES = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
}


def _typed_model(kind, tmp_path, raw, external):
    """Two dense layers of one element type; the second's weight is read transposed and plain."""
    draw = np.random.default_rng(1)
    shapes = {"a.weight": [4, 6], "a.bias": [6], "b.weight": [6, 3], "unread": [2]}
    arrays = {n: draw.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}
    tensors = [helper.make_tensor(n, _TYPES[kind], a.shape, a.ravel()) for n, a in arrays.items()]
    if raw:
        tensors = [numpy_helper.from_array(numpy_helper.to_array(t), t.name) for t in tensors]
    scale = helper.make_node(
        "Constant", [], ["half"], value=helper.make_tensor("", _TYPES[kind], [1], [0.5])
    )
    bodies = [
        helper.make_node("Gemm", ["x", "a.weight", "a.bias"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Mul", ["r", "half"], ["s"]),
        helper.make_node("MatMul", ["s", "b.weight"], ["y"]),
        helper.make_node("Neg", ["y"], ["unused"]),
    ]
    ends = [
        helper.make_tensor_value_info(n, _TYPES[kind], ["batch", width])
        for n, width in (("x", 4), ("y", 3))
    ]
    graph = helper.make_graph([scale, *bodies], kind, ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    path = tmp_path / "typed.onnx"
    onnx.save(model, path, save_as_external_data=external, location="typed.bin", size_threshold=16)
    return path


@pytest.mark.parametrize("external", [False, True], ids=["inside", "external"])
@pytest.mark.parametrize("raw", [False, True], ids=["typed", "raw"])
@pytest.mark.parametrize("kind", _TYPES)
def test_trained_model_keeps_every_form_of_data(kind, raw, external, tmp_path):
    if external and not raw:
        pytest.skip("external data are raw")
    _assert_as_onnx_writes_it(_typed_model(kind, tmp_path, raw, external), tmp_path)


def test_trained_model_refuses_a_damaged_graph(tmp_path):
    program, state = _program(et.load_onnx(_zoo_model("mlp")[0]))
    for data in (program.onnx[:-5], b"\x0a" * 40, b"\xff" * 9, b""):
        broken = dataclasses.replace(program, onnx=data)
        with pytest.raises(ProgramError, match="Compile"):
            export_trained(broken, state, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def _assert_comes_back(path, tmp_path):
    """A Program's model with its initial values equals the compiled one, constants included.

    Names and order are equal too.
    """
    model = et.load_onnx(path)
    program, _ = _program(model)
    init = {slot.name: model.initializers[slot.name] for slot in program.persistent}
    folder = tmp_path / "again"
    folder.mkdir()
    program = dataclasses.replace(program, init=init)
    again = et.load_onnx(write_initial(program, folder / "m.onnx"))
    for field in ("parameters", "buffers", "outputs", "inputs", "frozen", "untrained"):
        assert getattr(again, field) == getattr(model, field), field
    assert again.aliases == model.aliases
    shapes = [(n.op_type, n.inputs, n.outputs) for n in model.nodes]
    assert [(n.op_type, n.inputs, n.outputs) for n in again.nodes] == shapes
    assert again.initializers.keys() == model.initializers.keys()
    for name, array in model.initializers.items():
        np.testing.assert_array_equal(again.initializers[name], array, err_msg=name)


@pytest.mark.parametrize("name", slow_between(sorted({*ZOO} - {*LARGE}), 2) + slow_except(LARGE))
def test_a_programs_model_comes_back_as_it_was(name, tmp_path):
    _assert_comes_back(_zoo_model(name)[0], tmp_path)


@pytest.mark.parametrize("kind", _TYPES)
def test_a_programs_model_comes_back_in_every_type(kind, tmp_path):
    _assert_comes_back(_typed_model(kind, tmp_path, True, True), tmp_path)


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if "squeezenet" in p.name else pytest.mark.slow) for p in LIGHT],
    ids=lambda path: path.stem,
)
def test_a_programs_model_comes_back_with_weights_that_nodes_made(path, tmp_path):
    """Files older than version 4 of ONNX's format, whose initializers are also inputs."""
    _assert_comes_back(path, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", NETS)
def test_a_programs_model_comes_back_from_torchs_own_exports(name, exporter, tmp_path):
    _assert_comes_back(exported(name, exporter, tmp_path)[1], tmp_path)


def _linear_with(loss, inputs, outputs, **constants) -> bytes:
    """A linear layer x -> logits, followed by the nodes of a loss."""
    draw = np.random.default_rng(0)
    weights = {"w": draw.standard_normal((5, 4)).astype(np.float32), "b": np.ones(4, np.float32)}
    kinds = {
        "x": (TensorProto.FLOAT, ["n", 5]), "labels": (TensorProto.INT64, ["n"]),
        "y": (TensorProto.FLOAT, ["n", 4]), "logits": (TensorProto.FLOAT, ["n", 4]),
        "loss": (TensorProto.FLOAT, []), "right": (TensorProto.FLOAT, []),
        "scale": (TensorProto.FLOAT, ["n", 4]),
    }  # fmt: skip
    infos = [
        [helper.make_tensor_value_info(n, *kinds[n]) for n in names] for names in (inputs, outputs)
    ]
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["logits"])]
    nodes += [helper.make_node(op, i.split(), [o], **attrs) for op, i, o, attrs in loss]
    tensors = [numpy_helper.from_array(a, n) for n, a in (weights | constants).items()]
    graph = helper.make_graph(nodes, "own", *infos, tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString()


_CLASSES = [("SoftmaxCrossEntropyLoss", "logits labels", "loss", {})]
_SPELLED = [  # binary cross-entropy with logits, written out
    ("Relu", "logits", "up", {}), ("Mul", "logits y", "by", {}), ("Abs", "logits", "abs", {}),
    ("Neg", "abs", "neg", {}), ("Exp", "neg", "exp", {}), ("Add", "exp one", "more", {}),
    ("Log", "more", "log", {}), ("Sub", "up by", "sub", {}), ("Add", "sub log", "each", {}),
    ("ReduceMean", "each", "loss", {"keepdims": 0}),
]  # fmt: skip
_SQUARED = [
    ("Sub", "logits y", "d", {}),
    ("Mul", "d d", "e", {}),
    ("ReduceMean", "e", "loss", {"keepdims": 0}),
]
_RIGHT = [("Sub", "logits y", "off", {}), ("ReduceSum", "off", "right", {"keepdims": 0})]
_ONE = {"one": np.ones(1, np.float32)}
_SCALED = [
    ("Mul", "logits scale", "s", {}), ("Sub", "s y", "d", {}), ("Gemm", "d v", "e", {}),
    ("ReduceMean", "e", "loss", {"keepdims": 0}),
]  # fmt: skip
# Name -> nodes, inputs, outputs, constants; inputs and outputs of the trained file.
OWN_LOSSES = {
    "beside the logits": (_CLASSES, "x labels", "logits loss", {}, "x", "logits"),
    "alone": (_CLASSES, "x labels", "loss", {}, "x", "logits"),
    "by hand": (_SPELLED, "x y", "loss", _ONE, "x", "logits"),
    "squares": (_SQUARED, "x y", "loss", {}, "x", "logits"),
    "the target is read elsewhere": (
        _SQUARED + _RIGHT, "x y", "right loss", {}, "x y", "right loss"
    ),
    "no target": (
        [("ReduceMean", "logits", "loss", {"keepdims": 0})], "x", "logits loss", {},
        "x", "logits loss",
    ),
    "weights behind the target": (
        _SCALED, "x scale y", "loss", {"v": np.diag(np.float32([1, 2, 3, 4]))},
        "x scale y", "loss",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN_LOSSES)
def test_inputs_that_only_a_loss_reads_are_left_out(name, tmp_path, capsys):
    loss, inputs, outputs, constants, *expected = OWN_LOSSES[name]
    path = tmp_path / "own.onnx"
    path.write_bytes(_linear_with(loss, inputs.split(), outputs.split(), **constants))
    draw = np.random.default_rng(1)
    data = {
        "x": draw.standard_normal((8, 5)).astype(np.float32),
        "y": draw.integers(0, 2, (8, 4)).astype(np.float32),
        "labels": draw.integers(0, 4, 8),
        "scale": np.ones((8, 4), np.float32),
    }
    given = {field: data[field] for field in inputs.split()}
    program = et.compile(path, loss="output", output="loss", minibatch=8)
    with et.Trainer(program, given, out=tmp_path / "run") as trainer:
        trainer.fit(epochs=2)
        exported = trainer.export_onnx(tmp_path / "trained.onnx")
        logits = data["x"] @ trainer.parameters["w"] + trainer.parameters["b"]
    file = onnx.load(exported)
    onnx.checker.check_model(file, full_check=True)
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    found = [[one.name for one in part] for part in (session.get_inputs(), session.get_outputs())]
    assert found == [part.split() for part in expected]
    if expected[1] == "logits":
        assert session.get_outputs()[0].shape[1] == 4
        assert {one.name for one in file.graph.initializer} == {"w", "b"}
        for n in (8, 3):
            (result,) = session.run(None, {"x": data["x"][:n]})
            np.testing.assert_allclose(result, logits[:n], rtol=1e-5, atol=1e-6)
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "again.onnx")]) == 0
    assert ("left out" in capsys.readouterr().err) == (expected[0] != inputs)
    assert Path(tmp_path / "again.onnx").read_bytes() == exported.read_bytes()


def test_a_program_whose_file_loses_its_loss_is_proved(tmp_path):
    path = tmp_path / "own.onnx"
    path.write_bytes(_linear_with(_CLASSES, ["x", "labels"], ["loss"]))
    program = et.compile(path, loss="output", minibatch=4)
    verify(program)
    program.save(tmp_path / "own.edge")
    verify(et.load_program(tmp_path / "own.edge"))


def test_a_loss_of_the_model_needs_no_y_in_the_shell(tmp_path, capsys):
    path, draw = tmp_path / "own.onnx", np.random.default_rng(1)
    path.write_bytes(_linear_with(_CLASSES, ["x", "labels"], ["logits", "loss"]))
    data = {"x": draw.standard_normal((16, 5)), "labels": draw.integers(0, 4, 16)}
    np.savez(
        tmp_path / "d.npz", **{n: a.astype("f4" if n == "x" else "i8") for n, a in data.items()}
    )
    table = np.concatenate([data["x"], data["labels"][:, None]], 1)
    head = ",".join([*(f"x.{k}" for k in range(5)), "labels"])
    np.savetxt(tmp_path / "d.csv", table, "%.9g", ",", header=head, comments="")
    for source in ("npz:d.npz", "csv:d.csv"):
        kind, _, file = source.partition(":")
        argv = ["train", str(path), "--data", f"{kind}:{tmp_path / file}", "--epochs", "1"]
        argv += ["--loss", "output", "--output", "loss", "--minibatch", "4", "--json"]
        assert main([*argv, "--out", str(tmp_path / kind)]) == 0, capsys.readouterr().err
