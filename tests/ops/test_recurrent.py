"""Recurrent nodes with subsets of their outputs, trained or frozen; refusals by name."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.api import loss_and_gradients
from edgetrain.errors import DataError, ModelError
from edgetrain.importer.decode import decode

from ..cases_sequences import GATES, recurrent

T, BATCH, WIDTH, N = 3, 4, 2, 5  # steps, rows, features, units
_NAMES = {"y": "Y", "yh": "H", "yc": "C"}


def _arrays(cell: str, d: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    gates = GATES[cell]
    shapes = {"w": (d, gates * N, WIDTH), "r": (d, gates * N, N), "b": (d, 2 * gates * N)}
    return {k: (0.6 * rng.normal(size=s)).astype(np.float32) for k, s in shapes.items()}


def _model(cell: str, d: int, wanted: tuple[str, ...], **attrs):
    """x [BATCH, T, WIDTH] -> "out" [BATCH, ...]: the wanted outputs, batch first, concatenated."""
    nodes = [helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2])]
    outputs = [_NAMES[k] if k in wanted else "" for k in ("y", "yh", "yc")]
    while not outputs[-1]:
        outputs.pop()
    attrs |= {"hidden_size": N, "direction": "bidirectional" if d == 2 else "forward"}
    nodes.append(helper.make_node(cell.upper(), ["steps", "w", "r", "b"], outputs, "cell", **attrs))
    for key in wanted:
        perm = [2, 0, 1, 3] if key == "y" else [1, 0, 2]
        name = _NAMES[key]
        nodes.append(helper.make_node("Transpose", [name], [f"{name}.t"], perm=perm))
        nodes.append(helper.make_node("Flatten", [f"{name}.t"], [f"{name}.f"]))
    flat = [f"{_NAMES[key]}.f" for key in wanted]
    nodes.append(helper.make_node("Concat", flat, ["out"], axis=1))
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", T, WIDTH]),
        helper.make_tensor_value_info("out", TensorProto.FLOAT, None),
    ]
    arrays = [numpy_helper.from_array(a, k) for k, a in _arrays(cell, d).items()]
    graph = helper.make_graph(nodes, "model", infos[:1], infos[1:], arrays)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return decode(proto, Path("model"))


def _expected(cell, d, wanted, x, target):
    weights = {
        k: torch.tensor(a, dtype=torch.float64, requires_grad=True)
        for k, a in _arrays(cell, d).items()
    }
    steps = torch.tensor(x, dtype=torch.float64).transpose(0, 1)
    direction = "bidirectional" if d == 2 else "forward"
    meaning = recurrent(cell, ("y", "yh", "yc"), direction=direction)
    made = dict(zip(("y", "yh", "yc"), meaning(steps, *weights.values()), strict=True))
    made["y"] = made["y"].permute(2, 0, 1, 3)
    for key in ("yh", "yc"):
        made[key] = made[key].transpose(0, 1)
    out = torch.cat([made[key].flatten(1) for key in wanted], 1)
    loss = torch.nn.functional.mse_loss(out, torch.tensor(target, dtype=torch.float64))
    loss.backward()
    return loss.item(), {k: w.grad.numpy() for k, w in weights.items()}


def _data(d: int, wanted: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    width = sum(d * N * (T if key == "y" else 1) for key in wanted)
    return tuple(rng.normal(size=s).astype(np.float32) for s in ((BATCH, T, WIDTH), (BATCH, width)))


@pytest.mark.parametrize(
    "cell, d, wanted",
    [
        ("lstm", 2, ("y", "yh", "yc")),
        ("lstm", 1, ("yc",)),
        ("lstm", 1, ("yh",)),
        ("gru", 2, ("yh",)),
        ("gru", 1, ("y", "yh")),
        ("rnn", 2, ("yh",)),
    ],
)
def test_recurrent_gradients_flow_from_the_outputs_that_are_used(cell, d, wanted):
    x, target = _data(d, wanted)
    loss, grads = loss_and_gradients(_model(cell, d, wanted), {"x": x}, target, loss="mse")
    expected_loss, expected = _expected(cell, d, wanted, x, target)
    # fp32 sums of tens of terms against fp64.
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    for name, gradient in expected.items():
        error = np.linalg.norm(grads[name] - gradient) / np.linalg.norm(gradient)
        assert error < 1e-5, name


def test_recurrent_trains_its_bias_alone():
    x, target = _data(1, ("y",))
    _, grads = loss_and_gradients(
        _model("gru", 1, ("y",)), {"x": x}, target, loss="mse", train=("b",)
    )
    _, expected = _expected("gru", 1, ("y",), x, target)
    assert grads.keys() == {"b"}
    np.testing.assert_allclose(grads["b"], expected["b"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "attrs, said",
    [
        ({"clip": 3.0}, "clip 3.0"),
        ({"input_forget": 1}, "input_forget 1"),
        ({"activations": ["Relu", "Tanh", "Tanh"]}, "activations"),
    ],
)
def test_recurrent_names_what_it_has_no_kernel_for(attrs, said):
    x, target = _data(1, ("y",))
    with pytest.raises(ModelError, match=f"'cell' .LSTM.: {said}"):
        loss_and_gradients(_model("lstm", 1, ("y",), **attrs), {"x": x}, target, loss="mse")


def _with_lengths(constant: list[int] | None = None):
    """x [batch, T, WIDTH], lengths [batch] -> "out" [batch, N], the last state of a GRU."""
    arrays = [numpy_helper.from_array(a, k) for k, a in _arrays("gru", 1).items()]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", T, WIDTH]),
        helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
    ]
    if constant:
        infos, lengths = infos[:1], np.array(constant, np.int32)
        infos[0].type.tensor_type.shape.dim[0].dim_value = len(constant)
        arrays.append(numpy_helper.from_array(lengths, "lengths"))
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node(
            "GRU", ["steps", "w", "r", "b", "lengths"], ["", "h"], "cell", hidden_size=N
        ),
        helper.make_node("Squeeze", ["h", "first"], ["out"]),
    ]
    arrays.append(numpy_helper.from_array(np.array([0]), "first"))
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "model", infos, outputs, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


@pytest.mark.parametrize("wrong", [T + 1, -1])
def test_a_length_beyond_the_steps_is_refused(wrong):
    model = decode(_with_lengths(), Path("model"))
    rng = np.random.default_rng(5)
    data = {
        "x": rng.normal(size=(BATCH, T, WIDTH)).astype(np.float32),
        "lengths": np.array([T, 1, 2, 1], np.int32),
        "y": rng.normal(size=(BATCH, N)).astype(np.float32),
    }
    program = et.compile(model, minibatch=BATCH, loss="mse", verbose=False)
    with et.Trainer(program, data, verbose=False) as trainer:
        trainer.fit(steps=1)
    data["lengths"][2] = wrong
    with (
        pytest.raises(DataError, match=rf"lengths.*{wrong}|{wrong}.*lengths"),
        et.Trainer(program, data, verbose=False) as trainer,
    ):
        trainer.fit(steps=1)


def test_constant_lengths_beyond_the_steps_are_refused():
    model = decode(_with_lengths([T, T + 1, 1, 1]), Path("model"))
    with pytest.raises(ModelError, match=rf"lengths \[3, 4, 1, 1\].*from 0 to {T}"):
        et.compile(model, minibatch=BATCH, loss="mse", verbose=False)
