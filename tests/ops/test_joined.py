"""Axes over which ONNX ops take elements together: their own files say so."""

import pytest

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
