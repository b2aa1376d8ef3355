"""What fusions save, what they must leave alone, and the evaluation graph."""

import numpy as np
import pytest

from edgetrain.api import gradient_program
from edgetrain.compiler.passes import fusion
from edgetrain.ir import Builder
from edgetrain.runtime.session import Session

from .nets import Net, conv_bn_relu_conv, graphs, residual

pytestmark = pytest.mark.usefixtures("quick_planner")


def _ops(graph):
    return [node.op for node in graph.nodes]


def test_batch_norm_and_relu_become_part_of_their_reader():
    train = graphs(conv_bn_relu_conv()).train
    assert not {"bn_apply", "relu"} & set(_ops(train))
    assert {"bn1", "relu1"}.isdisjoint(train.values)


def test_batch_norm_with_another_reader_is_kept():
    net = Net(2, 5, 5)
    y = net.norm(net.conv("x", "c1", 4, 2), "bn", 4)
    net.add("Add", [net.conv(y, "c2", 4, 4), y], "sum")
    train = graphs(net.model(net.head("sum", 4))).train
    assert _ops(train).count("bn_apply") == 1


def test_batch_norm_that_a_convolution_reads_as_weight_is_kept():
    net = Net(2, 5, 5)
    y = net.add("Relu", [net.norm(net.conv("x", "c1", 4, 2), "bn", 4)], "r")
    net.add("Concat", [y, net.conv(y, "c2", 4, 4)], "joined", axis=1)
    assert _ops(graphs(net.model(net.head("joined", 8))).train).count("bn_apply") == 1


@pytest.mark.parametrize(
    ("activation", "code", "attrs"),
    [("Relu", 1, {}), ("HardSwish", 3, {}), ("Sigmoid", 4, {}), ("LeakyRelu", 6, {"alpha": 0.1})],
)
def test_activation_behind_batch_norm_is_absorbed(activation, code, attrs):
    net = Net(2, 5, 5)
    y = net.add(activation, [net.norm(net.conv("x", "c1", 4, 2), "bn", 4)], "act", **attrs)
    train = graphs(net.model(net.head(y, 4))).train
    (apply,) = [node for node in train.nodes if node.op == "bn_apply"]
    assert apply.attrs["act"] == code and apply.outputs == ("act",)


def test_activation_of_a_batch_norm_that_is_read_twice_is_not_absorbed():
    net = Net(2, 5, 5)
    y = net.norm(net.conv("x", "c1", 4, 2), "bn", 4)
    net.add("Add", [net.add("Relu", [y], "r"), net.add("Tanh", [y], "t")], "sum")
    train = graphs(net.model(net.head("sum", 4))).train
    (apply,) = [node for node in train.nodes if node.op == "bn_apply"]
    assert not apply.attrs.get("act")


def test_relu_saves_bits_where_only_its_own_backward_would_keep_it():
    train = graphs(conv_bn_relu_conv()).train
    mask = train.values["relu2.mask"]
    assert (mask.dtype, mask.shape) == ("u8", (-(-2 * 4 * 25 // 8),))
    backward = {name for n in train.nodes if n.phase == "backward" for name in n.reads}
    assert "relu2.mask" in backward and "relu2" not in backward


def test_relu_that_a_weight_gradient_reads_keeps_its_output():
    net = Net(2, 5, 5)
    y = net.add("Relu", [net.conv("x", "c1", 4, 2)], "r")
    train = graphs(net.model(net.head(net.conv(y, "c2", 4, 4), 4))).train
    assert "relu" in _ops(train) and "relu_mask" not in _ops(train)


def test_relu_without_gradient_has_no_mask():
    train = graphs(conv_bn_relu_conv(), train=["fc.*"]).train
    assert "relu_mask" not in _ops(train)


def test_mask_takes_no_name_of_the_model():
    net = Net(2, 5, 5)
    y = net.conv("x", "relu.mask", 4, 2)
    train = graphs(net.model(net.head(net.add("Relu", [y], "relu"), 4))).train
    assert train.values["relu.mask"].dtype == "f32" and train.values["relu.mask'"].dtype == "u8"


def test_views_leave_no_nodes():
    for graph in (graphs(residual()).train, graphs(residual()).evaluate):
        assert "view" not in _ops(graph) and "flat" in graph.values


def test_evaluation_graph_reads_running_statistics_and_drops_dropout():
    evaluate = graphs(residual(dropout=0.5)).evaluate
    stats = [node.inputs for node in evaluate.nodes if node.op == "bn_eval_stats"]
    assert ("b0.bn1.mean", "b0.bn1.var") in stats and len(stats) == 4
    assert {"dropout", "bn_stats", "bn_running"}.isdisjoint(_ops(evaluate))
    assert {node.phase for node in evaluate.nodes} == {"eval", "loss"}


def test_evaluation_graph_passes_by_a_chain_of_dropouts_at_the_output():
    builder = Builder()
    x, a, b, c = (builder.value(n, (2, 4)) for n in "xabc")
    builder.node("tanh", [x], [a])
    builder.node("dropout", [a], [b], {"p": 0.5, "key": 1})
    builder.node("dropout", [b], [c], {"p": 0.5, "key": 2})
    graph = fusion.evaluation_graph(builder.graph([x], [c]))
    assert (_ops(graph), graph.outputs) == (["tanh"], ("a",))


def test_dropout_of_two_nodes_has_two_masks():
    train = graphs(residual(dropout=0.5)).train
    keys = [node.attrs["key"] for node in train.nodes if node.op == "dropout"]
    assert len(set(keys)) == 2


def test_dropout_keeps_its_share_and_scales_it():
    net = Net(64)
    net.constants["ratio"] = np.float32(0.25)
    net.weights["w"] = np.eye(64, dtype=np.float32)
    h = net.add("MatMul", ["x", "w"], "h")
    net.add("Dropout", [h, "ratio"], "y")
    x, target = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    program = gradient_program(net.model("y"), {"x": x}, target, loss="mse", dropout=True)
    session = Session(program)
    from edgetrain.runtime.microbatch import run_microbatch

    loss = run_microbatch(session, {"x": x}, target)
    session.close()
    # y is 0 or 4/3, so the mean square is 16/9 of the share kept: 0.75 within 4 sigma.
    assert loss * 9 / 16 == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 4096))
