"""The axes over which ONNX ops combine elements, as declared in the ops' own files."""

import pytest

from edgetrain.ir import Graph, Node, Value
from edgetrain.ops import samples
from edgetrain.ops.onnx_ops import OnnxNode, joined


class _Site:
    """The part of an import context that these rules read; `constants`: by index of the input."""

    def __init__(self, opset: int, constants: dict[int, list[int]]) -> None:
        self.opset, self._constants = opset, constants

    def has(self, node, index):
        return index in self._constants

    def ints(self, node, index, attr=""):
        return self._constants.get(index)

    def array(self, name):
        return self._constants.get(1) if name == "i" else None


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
        ("Hardmax", {}, 3, {2}),
        ("LpNormalization", {"axis": -2}, 3, {1}),
        ("TopK", {}, 3, {2}),
        ("Gather", {}, 3, {0}),
        ("Gather", {"axis": -1}, 3, {2}),
        ("GatherElements", {}, 3, {0}),
        ("GatherND", {"batch_dims": 1}, 3, {1, 2}),
        ("ScatterND", {}, 3, {0, 1, 2}),
        ("ScatterElements", {"axis": 1}, 3, {1}),
        ("ReverseSequence", {}, 3, {0}),
        ("Trilu", {}, 3, {1, 2}),
        ("Attention", {}, 4, {1, 2, 3}),
        ("RotaryEmbedding", {}, 3, {1, 2}),
        ("DFT", {"axis": 1}, 3, {1, 2}),
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
    node = OnnxNode("n", op_type, ("x", "i"), ("y",), attrs)
    assert {*joined(_Site(17, {}), node, rank)[0]} == axes


@pytest.mark.parametrize(
    ("op_type", "opset", "constants", "axes"),
    [
        ("Softmax", 11, {}, {1, 2}), ("Hardmax", 12, {}, {1, 2}), ("CumSum", 14, {1: [-3]}, {0}),
        ("ScatterElements", 16, {1: [0]}, {0, 1, 2}), ("Pad", 13, {1: [0, 1, 0, 0, -1, 0]}, {1}),
        ("Pad", 18, {1: [1, -1], 3: [2]}, {2}), ("DFT", 20, {2: [0]}, {0, 2}),
    ],
)  # fmt: skip
def test_axes_that_an_op_joins_follow_its_opset_and_constants(op_type, opset, constants, axes):
    node = OnnxNode("n", op_type, ("x", "i", "j" if 2 in constants else "", "k"), ("y",))
    assert {*joined(_Site(opset, constants), node, 3)[0]} == axes


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
