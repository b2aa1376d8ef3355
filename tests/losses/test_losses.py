"""Every loss against torch, from the ONNX file on; and its record."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.exporters.parity import parity
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.losses import Loss
from tests.quick import slow_except

from ..compiler.nets import Net
from .cases import LOSS_CASES


def linear(shape: tuple[int, ...]):
    """A model with one matrix, with this output shape after the batch."""
    net = Net(*shape[:-1], 5)
    name = net.add("MatMul", ["x", net.weight("w", 5, shape[-1])], "h")
    return net.model(net.add("Add", [name, net.weight("b", shape[-1])], "y"))


@pytest.mark.parametrize("case", LOSS_CASES)
@pytest.mark.parametrize("precision", slow_except(["fp32", "fp16"], "fp32"))
def test_loss_and_gradients_equal_torchs(case, precision):
    loss, shape = LOSS_CASES[case]
    report = parity(linear(shape), loss=loss, steps=2, minibatch=6, precision=precision)
    assert report.ok, report.summary()


@pytest.mark.parametrize("case", LOSS_CASES)
def test_a_minibatch_that_is_split_has_torchs_loss_and_gradients(case):
    """A loss that compares samples says so in `joins_samples`; its minibatch is never split."""
    loss, shape = LOSS_CASES[case]
    split = None if loss.joins_samples else 3
    report = parity(linear(shape), loss=loss, steps=1, minibatch=6, microbatch=split)
    assert report.ok, report.summary()


@pytest.mark.parametrize("loss", ["mse", "l1", "huber", "bce_with_logits", "cosine", "quantile"])
def test_an_output_may_hold_an_input_of_any_numbers(loss):
    """The input's numbers are not table indices, although the loss has rows."""
    net = Net(5)
    h = net.add("MatMul", ["x", net.weight("w", 5, 3)], "h")
    model = net.model(net.add("Concat", [h, "x"], "y", axis=1))
    report = parity(model, loss=loss, steps=1, minibatch=6, microbatch=3)
    assert report.ok, report.summary()


@pytest.mark.parametrize("case", LOSS_CASES)
def test_loss_is_made_again_from_its_record(case):
    loss, _ = LOSS_CASES[case]
    assert Loss.of_json(json.loads(json.dumps(loss.to_json()))) == loss


def own_loss(reduce: str):
    """A model of inputs x and y that returns the squared error of its prediction itself."""
    weight = numpy_helper.from_array(np.full((5, 1), 0.3, np.float32), "w")
    axes = numpy_helper.from_array(np.array([1]), "axes")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Sub", ["h", "y"], ["d"]),
        helper.make_node("Mul", ["d", "d"], ["e"]),
    ]
    if reduce == "mean":
        nodes.append(helper.make_node("ReduceMean", ["e"], ["loss"], keepdims=0))
    else:
        nodes.append(helper.make_node("Squeeze", ["e", "axes"], ["loss"]))
    shape = [] if reduce == "mean" else ["batch"]
    kinds = [("x", ["batch", 5]), ("y", ["batch", 1]), ("loss", shape)]
    *inputs, output = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in kinds)
    graph = helper.make_graph(nodes, "own", inputs, [output], [weight, axes])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return decode(parse(proto.SerializeToString(), "own"), Path("own"))


@pytest.mark.parametrize("reduce", ["mean", "sample"])
def test_a_model_may_give_its_loss_itself(reduce, tmp_path):
    model, draw = own_loss(reduce), np.random.default_rng(0)
    x = draw.standard_normal((70, 5)).astype(np.float32)
    y = (x.sum(1, keepdims=True) * 0.5).astype(np.float32)
    value, gradients = et.loss_and_gradients(model, {"x": x, "y": y}, None, loss="output")
    difference = x @ np.full((5, 1), 0.3, np.float32) - y
    assert value == pytest.approx(float((difference**2).mean()), rel=1e-5)
    np.testing.assert_allclose(gradients["w"], 2 * x.T @ difference / 70, rtol=1e-4, atol=1e-5)
    report = parity(model, loss="output", steps=2, minibatch=6)
    assert report.ok, report.summary()
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    program = et.compile(model, loss="output", optimizer=et.SGD(lr=0.1), minibatch=10, microbatch=5)
    trainer = et.Trainer(program, f"npz:{tmp_path / 'd.npz'}")
    trainer.fit(epochs=20)
    assert trainer.evaluate()["loss"] < 1e-3
    trainer.close()


def test_class_weights_are_one_for_each_class():
    for weights in ((1.0, 2.0), (0.0,) * 4):
        with pytest.raises(et.UsageError, match="class_weights"):
            et.compile(linear((4,)), loss=Loss("cross_entropy", class_weights=weights))


def test_a_minibatch_whose_samples_are_compared_is_not_split():
    model = linear((2, 4))
    program = et.compile(model, loss="info_nce", minibatch=8)
    assert (program.microbatch, program.account["mixed_by"]) == (8, Loss("info_nce").joins_samples)
    with pytest.raises(et.UsageError, match="microbatch 4"):
        et.compile(model, loss="info_nce", minibatch=8, microbatch=4)
    trainer = et.Trainer(program)
    assert trainer.predict(np.zeros((3, 2, 5), np.float32)).shape == (3, 2, 4)
    trainer.close()


@pytest.mark.parametrize(
    "loss, shape",
    [("triplet", (2, 4)), ("info_nce", (3, 4)), ("ctc", (4,))],
)
def test_outputs_of_another_shape_are_refused(loss, shape):
    with pytest.raises(et.UsageError, match=str([*shape])[1:-1]):
        et.compile(linear(shape), loss=loss, minibatch=4)
