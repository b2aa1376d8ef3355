"""Losses that are graph nodes: ignored labels, and labels that are not a class."""

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.compiler.model.samples import MEAN, MIXED
from edgetrain.errors import DataError

SAMPLES, CLASSES = 4, 5


def _trainer(tmp_path, **attributes) -> et.Trainer:
    """Scores are a table added to the input; the loss has no other weight."""
    shape = ["batch", CLASSES]
    nodes = [
        helper.make_node("Add", ["x", "table"], ["scores"]),
        helper.make_node("SoftmaxCrossEntropyLoss", ["scores", "labels"], ["loss"], **attributes),
    ]
    graph = helper.make_graph(
        nodes, "loss",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
         helper.make_tensor_value_info("labels", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.zeros((1, CLASSES), np.float32), "table")],
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    program = et.compile(
        et.load_onnx(path), loss="output", optimizer=et.SGD(lr=0.5), minibatch=SAMPLES
    )
    return et.Trainer(program)


def _step(trainer: et.Trainer, labels) -> float:
    x = np.random.default_rng(0).standard_normal((SAMPLES, CLASSES)).astype(np.float32)
    with trainer:
        return trainer.step({"x": x, "labels": np.array(labels)}).loss


def _torchs(labels, **options) -> float:
    x = np.random.default_rng(0).standard_normal((SAMPLES, CLASSES)).astype(np.float32)
    return F.cross_entropy(torch.tensor(x), torch.tensor(labels), **options).item()


@pytest.mark.parametrize("ignored", [-100, 2])
def test_ignored_labels_count_for_nothing(tmp_path, ignored):
    labels = [1, ignored, 4, 0]
    found = _step(_trainer(tmp_path, ignore_index=ignored), labels)
    assert found == pytest.approx(_torchs(labels, ignore_index=ignored), rel=1e-6)


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_labels_that_are_no_class_are_refused(tmp_path, label):
    with pytest.raises(DataError, match=f"{label}"):
        _step(_trainer(tmp_path), [1, label, 4, 0])


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_labels_that_are_no_class_are_refused_where_some_may_be_ignored(tmp_path, label):
    with pytest.raises(DataError, match=f"sample 1: value {label}"):
        _step(_trainer(tmp_path, ignore_index=-100), [1, label, 4, 0])


@pytest.mark.parametrize("attributes, found", [({}, MEAN), ({"ignore_index": -100}, MIXED)])
def test_a_mean_over_all_labels_is_split(tmp_path, attributes, found):
    """A mean over labels that are not ignored cannot be split by samples."""
    with _trainer(tmp_path, **attributes) as trainer:
        assert trainer.program.account["samples"] == found
