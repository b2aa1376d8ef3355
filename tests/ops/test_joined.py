"""The axes over which ONNX ops combine elements, as declared in the ops' own files."""

import pytest

from edgetrain.ir import Graph, Node, Value
from edgetrain.ops import samples
from edgetrain.ops.registry import OnnxNode, joined

IMAGES = (
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool",
    "GlobalMaxPool", "GlobalLpPool", "BatchNormalization", "InstanceNormalization",
    "GroupNormalization", "LRN", "DepthToSpace", "SpaceToDepth",
)  # fmt: skip


@pytest.mark.parametrize(
    "op_type, attrs, rank, axes",
    [
        *((name, {}, 4, {1, 2, 3}) for name in IMAGES),
        ("LayerNormalization", {}, 3, {2}),
        ("LayerNormalization", {"axis": 1}, 3, {1, 2}),
        ("RMSNormalization", {"axis": -2}, 3, {1, 2}),
        ("Softmax", {}, 3, {2}),
        ("LogSoftmax", {"axis": 0}, 3, {0}),
        *((name, {}, 3, {0, 2}) for name in ("LSTM", "GRU", "RNN")),
        ("GRU", {"layout": 1}, 3, {1, 2}),
        ("SoftmaxCrossEntropyLoss", {}, 3, {1}),
        ("NegativeLogLikelihoodLoss", {}, 4, {1}),
        ("Relu", {}, 4, set()),
        ("NoSuchOp", {}, 4, set()),
    ],
)
def test_samples_lie_on_no_axis_that_an_op_joins(op_type, attrs, rank, axes):
    assert {*joined(OnnxNode("n", op_type, ("x",), ("y",), attrs), rank)[0]} == axes


@pytest.mark.parametrize(
    ("rule", "kind", "degree", "step"),
    [
        (samples.summed, samples.POOLED, 1, 0), (samples.averaged, samples.POOLED, 0, 0),
        (samples.negated, samples.EACH, 0, -3), (samples.linear, samples.EACH, 0, 3),
        (samples.added, samples.EACH, 0, 6), (samples.subtracted, samples.EACH, 0, 0),
    ],
)  # fmt: skip
def test_a_rule_of_samples_holds_for_an_op_of_any_name(rule, kind, degree, step):
    """Sums by ops not named reduce_sum once counted as means, so splits were weighted wrongly."""
    values = {name: Value(name, (4, 1), "f32", "activation") for name in ("a", "b", "y")}
    pooled = rule in (samples.summed, samples.averaged)
    inputs = ("a", "b") if rule in (samples.added, samples.subtracted) else ("a",)
    node = Node("n", "another", inputs, ("y",), {"axes": (0,)})
    graph = Graph((node,), values, ("a", "b"), ("y",))
    state = samples.State(samples.EACH, 1, step=0 if pooled else 3)
    found = rule(samples.Look(node, graph, 4, (state,) * len(inputs), lambda name: None))
    assert (found.kind, found.degree, found.step) == (kind, degree, step)
