"""From a model to its graphs: removed softmaxes, several inputs and outputs, fixed batches."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from edgetrain.api import loss_and_gradients, make_options
from edgetrain.compiler.tapes.update import update_tape
from edgetrain.errors import ModelError, UsageError
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.kernels.cache import jit
from edgetrain.losses import Loss
from edgetrain.optim import AdamW

from .nets import Net, graphs, residual

pytestmark = pytest.mark.usefixtures("quick_planner")


def _ops(graph):
    return [node.op for node in graph.nodes]


def _classifier(*tail):
    net = Net(4)
    y = net.add("MatMul", ["x", net.weight("w", 4, 3)], "logits")
    net.constants |= {"last": np.array([2]), "rows": np.array([0, -1])}
    for op, *more in tail:
        y = net.add(op, [y, *more], f"{y}.{op}")
    return net.model(y)


TAILS = [
    [("Softmax",)], [("LogSoftmax",)], [("Softmax",), ("Identity",)],
    [("Softmax",), ("Flatten",)], [("LogSoftmax",), ("Reshape", "rows")],
    [("Unsqueeze", "last"), ("Squeeze", "last"), ("Softmax",)],
]  # fmt: skip


@pytest.mark.parametrize("tail", TAILS, ids=["-".join(t[0] for t in tail) for tail in TAILS])
def test_trailing_softmax_is_peeled_under_cross_entropy(tail):
    model = _classifier(*tail)
    built = graphs(model)
    assert {"softmax", "log_softmax"}.isdisjoint([*_ops(built.train), *_ops(built.evaluate)])
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    target = np.array([2, 0])
    loss, grads = loss_and_gradients(model, {"x": x}, target)
    w = torch.tensor(model.initializers["w"], dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(torch.tensor(x).double() @ w, torch.tensor(target))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(grads["w"], w.grad, rtol=1e-5, atol=1e-7)


def test_trailing_sigmoid_is_peeled_under_bce_alone():
    model = _classifier(("Sigmoid",))
    assert "sigmoid" not in _ops(graphs(model, loss="bce_with_logits").train)
    assert "sigmoid" in _ops(graphs(model, loss="mse").train)
    assert "softmax" in _ops(graphs(_classifier(("Softmax",)), loss="mse").train)


def _parsed(nodes, infos, outputs, arrays):
    info = helper.make_tensor_value_info
    outs = [info(name, TensorProto.FLOAT, ["batch", None]) for name in outputs]
    tensors = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "g", infos, outs, tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    trained = [n for n, a in arrays.items() if a.dtype == np.float32]
    helper.set_model_props(proto, {"edgetrain.parameters": json.dumps(trained)})
    return decode(parse(proto.SerializeToString(), "g"), Path("g"))


def _two_inputs():
    rng = np.random.default_rng(0)
    arrays = {
        "e": rng.standard_normal((5, 3)).astype(np.float32),
        "w": rng.standard_normal((3, 2)).astype(np.float32),
        "v": rng.standard_normal((3, 4)).astype(np.float32),
        "one": np.array([1]),
    }
    nodes = [
        helper.make_node("Gather", ["e", "ids"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Add", ["mean", "shift"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
        helper.make_node("MatMul", ["mean", "v"], ["z"]),
    ]
    info = helper.make_tensor_value_info
    infos = [info("ids", TensorProto.INT64, ["batch", "T"]), info("shift", 1, ["batch", 3])]
    return _parsed(nodes, infos, ["y", "z"], arrays)


def test_several_inputs_are_filled_by_name():
    model, rng = _two_inputs(), np.random.default_rng(4)
    ids = rng.integers(0, 5, (2, 6))
    shift = rng.standard_normal((2, 3)).astype(np.float32)
    target = rng.standard_normal((2, 2)).astype(np.float32)
    inputs = {"ids": ids, "shift": shift}
    loss, grads = loss_and_gradients(model, inputs, target, loss="mse", dims={"T": 6})
    e, w = (torch.tensor(model.initializers[n], requires_grad=True) for n in ("e", "w"))
    y = (e[torch.tensor(ids)].mean(1) + torch.tensor(shift)) @ w
    expected = torch.nn.functional.mse_loss(y, torch.tensor(target))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    assert sorted(grads) == ["e", "w"]
    np.testing.assert_allclose(grads["e"], e.grad, rtol=1e-5, atol=1e-6)


def test_named_output_is_trained_and_unneeded_inputs_are_dropped():
    train = graphs(_two_inputs(), loss="mse", output="z", dims={"T": 6}).train
    assert train.outputs == ("z",) and "shift" not in train.inputs
    with pytest.raises(ModelError, match=r"'q'.* y, z"):
        graphs(_two_inputs(), loss="mse", output="q", dims={"T": 6})


@pytest.mark.parametrize("microbatch", [1, 4])
def test_batch_that_the_export_baked_is_replaced(microbatch):
    arrays = {"w": np.ones((8, 3), np.float32), "shape": np.array([1, 8])}
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4])]
    model = _parsed(nodes, infos, ["y"], arrays)
    train = graphs(model, microbatch, loss="mse").train
    assert train.values["y"].shape == (microbatch, 3)


def test_shapes_computed_by_the_model_are_folded():
    arrays = {"w": np.ones((8, 3), np.float32), "zero": np.array(0), "rest": np.array([-1])}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n"], ["n1"], axes=[0]),
        helper.make_node("Concat", ["n1", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    nodes[2] = helper.make_node("Reshape", ["n", "rest"], ["n1"])
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2, 4])]
    train = graphs(_parsed(nodes, infos, ["y"], arrays), 4, loss="mse").train
    assert _ops(train) == ["matmul", "loss", "loss_bwd", "matmul_grad"]


def test_output_without_a_batch_is_an_error():
    net = Net(4)
    y = net.add("MatMul", ["x", net.weight("w", 4, 3)], "h")
    with pytest.raises(ModelError, match="has no batch axis"):
        graphs(net.model(net.add("ReduceMean", [y], "m", keepdims=0)), loss="mse")


def test_constant_output_is_an_error():
    net = Net(4)
    net.add("MatMul", ["x", net.weight("w", 4, 3)], "h")
    net.constants["c"] = np.ones((2, 3), np.float32)
    with pytest.raises(ModelError, match="'y'"):
        graphs(net.model("h", net.add("Identity", ["c"], "y")), loss="mse", output="y")


@pytest.mark.parametrize(
    ("shape", "loss", "expected"),
    [
        ((2, 10), Loss(), (2,)),
        ((2, 7, 10), Loss(), (2, 7)),
        ((2, 10, 4, 4), Loss(), (2, 4, 4)),
        ((2, 10, 7), Loss(class_axis=1), (2, 7)),
        ((2, 10), Loss("mse"), (2, 10)),
        ((2, 1), Loss("bce_with_logits"), (2, 1)),
    ],
)
def test_loss_knows_the_shape_of_its_targets(shape, loss, expected):
    assert loss.target_shape(shape) == expected


@pytest.mark.parametrize(
    "options",
    [{"kind": "l7"}, {"label_smoothing": 1.0}, {"label_smoothing": -0.1},
     {"label_smoothing": float("nan")}],
)  # fmt: skip
def test_loss_refuses_options_out_of_range(options):
    with pytest.raises(UsageError):
        Loss(**options)


@pytest.mark.parametrize("axis", [0, 2, 9, -1])
def test_loss_refuses_a_class_axis_that_is_not_there(axis):
    with pytest.raises(UsageError, match="class axis"):
        Loss(class_axis=axis).axis((2, 10))


def test_update_tape_is_norm_decision_statistics_and_one_update_for_each_parameter():
    built = graphs(residual(), optimizer="adamw")
    options = make_options(optimizer=AdamW(beta1=0.5), minibatch=2, max_grad_norm=2.0)
    tape = update_tape(built.train, options, jit.host())
    count = sum(v.role == "accumulator" for v in built.train.values.values())
    kernels = [i.kernel.name for i in tape.instructions]
    staged = sum(v.role == "staged" for v in built.train.values.values())
    decision = ["stat_check"] * staged + ["grad_finish"] + ["stat_commit"] * staged
    assert kernels == ["grad_sumsq"] * count + decision + ["adam"] * count + ["loss_scale"]
    assert staged == 8
    firsts = [i.args["first"] for i in tape.instructions[:count]]
    assert firsts == [1] + [0] * (count - 1)
    finish = tape.instructions[count + staged].args
    assert (finish["max_norm"], finish["c1"]) == (2.0, 0.5)
    assert finish["c2"] == pytest.approx(0.001)
    keys = [i.args["key"] for i in tape.instructions[-count - 1 : -1]]
    assert len(set(keys)) == count
    states = [v for v in tape.persistent if v.role == "state"]
    assert len(states) == 2 * count
    assert tape.persistent_nbytes == sum(-(-v.nbytes // 64) * 64 for v in tape.persistent)


def test_batch_norm_without_attributes_has_the_defaults_of_onnx():
    net = Net(2, 5, 5)
    train = graphs(net.model(net.head(net.norm(net.conv("x", "c", 4, 2), "bn", 4), 4))).train
    found = {
        key: n.attrs[key] for n in train.nodes for key in ("momentum", "eps") if key in n.attrs
    }
    assert found == {"momentum": pytest.approx(1 - 0.9), "eps": 1e-5}
