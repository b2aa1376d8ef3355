"""Gradients of graphs with forks, sums, views, tied and frozen parameters, compared with torch."""

import numpy as np
import pytest
import torch

from edgetrain.api import loss_and_gradients, make_options
from edgetrain.compiler.tapes.update import update_tape
from edgetrain.errors import ModelError, UsageError
from edgetrain.kernels.cache import jit

from .nets import Net, graphs, residual

pytestmark = pytest.mark.usefixtures("quick_planner")


def _backward(train):
    return [node for node in train.nodes if node.phase == "backward"]


def _roles(train, role):
    return {name for name, value in train.values.items() if value.role == role}


def test_residual_add_s_gradient_is_one_buffer():
    train = graphs(residual(), loss="cross_entropy").train
    assert [node.name for node in train.nodes if node.op == "copy"] == []
    (first,) = [node.outputs[0] for node in train.nodes if node.op == "unary_bwd"]
    added = [node for node in _backward(train) if node.op == "bn_dx" and node.attrs["acc"]]
    assert [train.root(node.outputs[0]) for node in added] == [train.root(first)] * 2


def test_gradients_are_added_in_the_reverse_order_of_the_readers():
    net = Net(4)
    h = net.add("MatMul", ["x", net.weight("w", 4, 4)], "h")
    parts = [net.add(op, [h], op.lower()) for op in ("Tanh", "Sigmoid", "Exp")]
    net.add("Sum", parts, "y")
    train = graphs(net.model("y"), loss="mse").train
    into = [n.attrs["f"] for n in _backward(train) if n.op == "unary_bwd"]
    assert into == ["exp", "sigmoid", "tanh"]
    roots = {train.root(n.outputs[0]) for n in _backward(train) if n.op == "unary_bwd"}
    assert len(roots) == 1


def test_frozen_parameter_has_no_accumulator_no_state_and_nothing_saved():
    options = {"loss": "cross_entropy", "freeze": ["conv1.w", "fc.*"], "optimizer": "adam"}
    train = graphs(residual(), freeze=["b0.conv1.w", "fc.*", "stem.w"], loss="cross_entropy").train
    assert _roles(train, "accumulator").isdisjoint({"b0.conv1.w.grad", "fc.w.grad", "stem.w.grad"})
    read = {name for node in _backward(train) for name in node.reads}
    assert "x" not in read and "flat" not in read
    chosen = make_options(**{**options, "freeze": ["fc.*"]}, minibatch=2)
    built = graphs(residual(), **{**options, "freeze": ["fc.*"]})
    tape = update_tape(built.train, chosen, jit.host())
    names = {value.name for value in tape.persistent}
    assert {"fc.w", "stem.w.moment1"} <= names
    assert names.isdisjoint({"fc.w.grad", "fc.w.moment1", "fc.b.moment2"})


def test_backward_stops_at_the_first_trained_parameter():
    train = graphs(residual(), train=["fc.*"], loss="cross_entropy").train
    assert {n.op for n in _backward(train)} == {"loss_bwd", "matmul_grad", "bgrad"}


def test_nothing_to_train_is_an_error():
    for options in ({"freeze": ["*"]}, {"train": ["gone.*"]}):
        with pytest.raises(UsageError):
            graphs(residual(), loss="cross_entropy", **options)


def test_output_that_nothing_trained_reaches_is_an_error():
    net = Net(4)
    net.add("MatMul", ["x", net.weight("w", 4, 4)], "h")
    net.add("Tanh", ["x"], "y")
    with pytest.raises(UsageError):
        graphs(net.model("h", "y"), loss="mse", output="y")


def test_parameters_of_another_output_are_left_alone():
    net = Net(4)
    net.add("MatMul", ["x", net.weight("w", 4, 4)], "y")
    net.add("MatMul", ["x", net.weight("v", 4, 2)], "z")
    train = graphs(net.model("y", "z"), loss="mse").train
    assert _roles(train, "accumulator") == {"w.grad"}
    assert "v" in train.values


def test_name_of_a_gradient_that_is_taken_is_an_error():
    net = Net(4)
    h = net.add("MatMul", ["x", net.weight("w", 4, 4)], "h")
    net.add("MatMul", [h, net.weight("w.grad", 4, 4)], "y")
    with pytest.raises(ModelError, match="w.grad"):
        graphs(net.model("y"), loss="mse")


def _values(model, shape, target):
    rng = np.random.default_rng(11)
    x = rng.standard_normal((2, *shape)).astype(np.float32)
    t = rng.standard_normal((2, *target)).astype(np.float32)
    loss, grads = loss_and_gradients(model, {"x": x}, t, loss="mse")
    weights = {
        n: torch.tensor(model.initializers[n], dtype=torch.float64, requires_grad=True)
        for n in model.parameters
    }
    return torch.tensor(x, dtype=torch.float64), torch.tensor(t), weights, loss, grads


def _check(y, t, weights, loss, grads):
    expected = torch.nn.functional.mse_loss(y, t.double())
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    for name, weight in weights.items():
        np.testing.assert_allclose(grads[name], weight.grad, rtol=1e-5, atol=1e-6, err_msg=name)


def test_tied_parameter_gets_the_sum_of_its_uses():
    net = Net(4)
    w = net.weight("w", 4, 4)
    h = net.add("Tanh", [net.add("MatMul", ["x", w], "a")], "h")
    turned = net.add("Transpose", [w], "wt", perm=[1, 0])
    net.add("Add", [net.add("MatMul", [h, turned], "b"), net.add("MatMul", [h, w], "c")], "y")
    x, t, weights, loss, grads = _values(net.model("y"), (4,), (4,))
    w = weights["w"]
    h = torch.tanh(x @ w)
    _check(h @ w.T + h @ w, t, weights, loss, grads)


def test_fork_of_sums_views_and_scaled_copies():
    """An aliased gradient that several values still need is never updated in place."""
    net = Net(4)
    a = net.add("MatMul", ["x", net.weight("w", 4, 4)], "a")
    b = net.add("Add", [a, a], "b")
    c = net.add("Sub", [b, a], "c")
    net.constants["shape"] = np.array([0, 2, 2])
    net.constants["flat"] = np.array([0, -1])
    d = net.add("Tanh", [net.add("Reshape", [c, "shape"], "view")], "d")
    e = net.add("Reshape", [d, "flat"], "e")
    f = net.add("Mul", [e, net.add("Add", [c, b], "g")], "f")
    net.add("Add", [net.add("Add", [f, e], "h"), c], "y")
    x, t, weights, loss, grads = _values(net.model("y"), (4,), (4,))
    a = x @ weights["w"]
    b = a + a
    c = b - a
    e = torch.tanh(c)
    _check(e * (c + b) + e + c, t, weights, loss, grads)


def test_parameter_through_views_and_arithmetic():
    """A weight that is scaled, sliced and joined before use."""
    net = Net(4)
    v, g = net.weight("v", 4, 6), net.weight("g", 1, 6)
    net.constants |= {k: np.array(n) for k, n in (("one", [1]), ("two", [2]), ("six", [6]))}
    net.constants["zero"] = np.array([0])
    w = net.add("Mul", [v, g], "w")
    left = net.add("Slice", [w, "zero", "two", "one"], "left")
    right = net.add("Slice", [w, "two", "six", "one"], "right")
    joined = net.add("Concat", [right, left], "joined", axis=1)
    net.add("Add", [net.add("MatMul", ["x", joined], "h"), g], "y")
    x, t, weights, loss, grads = _values(net.model("y"), (4,), (6,))
    w = weights["v"] * weights["g"]
    _check(x @ torch.cat([w[:, 2:], w[:, :2]], 1) + weights["g"], t, weights, loss, grads)


def test_computed_scale_of_a_layer_norm_gets_its_gradient():
    net = Net(4)
    h = net.add("MatMul", ["x", net.weight("w", 4, 4)], "h")
    scale = net.add("Exp", [net.weight("log_scale", 4)], "scale")
    net.add("LayerNormalization", [h, scale, net.weight("beta", 4)], "y")
    x, t, weights, loss, grads = _values(net.model("y"), (4,), (4,))
    scale = torch.exp(weights["log_scale"])
    y = torch.nn.functional.layer_norm(x @ weights["w"], (4,), scale, weights["beta"], 1e-5)
    _check(y, t, weights, loss, grads)


def test_transposed_operands_are_read_where_they_lie():
    """Attention without softmax: one transpose is absorbed, another has a second reader."""
    net = Net(3, 4)
    q = net.add("MatMul", ["x", net.weight("wq", 4, 4)], "q")
    k = net.add("MatMul", ["x", net.weight("wk", 4, 4)], "k")
    turned = net.add("Transpose", [k], "kt", perm=[0, 2, 1])
    scores = net.add("MatMul", [q, turned], "s")
    again = net.add("Transpose", [scores], "st", perm=[0, 2, 1])
    mixed = net.add("MatMul", [again, k], "m")
    net.add("Add", [mixed, net.add("MatMul", [net.add("Tanh", [again], "t"), q], "n")], "y")
    model = net.model("y")
    train = graphs(model, loss="mse").train
    assert [n.inputs[0] for n in train.nodes if n.op == "copy" and n.phase == "forward"] == ["s"]
    x, t, weights, loss, grads = _values(model, (3, 4), (3, 4))
    q, k = x @ weights["wq"], x @ weights["wk"]
    scores = q @ k.transpose(1, 2)
    again = scores.transpose(1, 2)
    _check(again @ k + torch.tanh(again) @ q, t, weights, loss, grads)
