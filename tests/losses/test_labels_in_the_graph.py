"""Labels that a model computes itself, for a loss in any form.

Labels outside the classes are refused with their sample; the ignored value is accepted.
"""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.bundle.image import image_of
from edgetrain.errors import DataError
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.kernels.emission import program as emit
from edgetrain.kernels.step_loop import layout

N, CLASSES = 4, 3


def _node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


_SCORES = [_node("Gemm", "x w", "z"), _node("LogSoftmax", "z", "s", axis=1)]
_COLUMN = _node("Unsqueeze", "labels one", "column")
_PICKED = [_node("GatherElements", "s column", "picked", axis=1)]
_MEAN = [_node("Neg", "picked", "costs"), _node("ReduceMean", "costs", "loss", keepdims=0)]
_KEPT = [_node("Equal", "labels out", "hit"), _node("Not", "hit", "kept")]
# name: (nodes, the ignored value)
FORMS = {
    "SoftmaxCrossEntropyLoss": (
        [_node("Gemm", "x w", "z"), _node("SoftmaxCrossEntropyLoss", "z labels", "loss")], None),
    "left out": (
        [_node("Gemm", "x w", "z"),
         _node("SoftmaxCrossEntropyLoss", "z labels", "loss", ignore_index=-100)], -100),
    "NegativeLogLikelihoodLoss": (
        [*_SCORES, _node("NegativeLogLikelihoodLoss", "s labels", "loss", ignore_index=7)], 7),
    "GatherElements": ([*_SCORES, _COLUMN, *_PICKED, *_MEAN], None),
    "GatherElements of what is kept": (
        [*_SCORES, *_KEPT, _node("Where", "kept labels first", "known"),
         _node("Unsqueeze", "known one", "column"), *_PICKED, *_MEAN], -1),
    "the other way around": (
        [*_SCORES, _KEPT[0], _node("Where", "hit first labels", "known"),
         _node("Unsqueeze", "known one", "column"), *_PICKED, *_MEAN], -1),
    "GatherND": (
        [*_SCORES, _COLUMN, _node("Concat", "rows column", "places", axis=1),
         _node("GatherND", "s places", "picked"), *_MEAN], None),
    "one-hot": (
        [*_SCORES, _COLUMN, _node("Equal", "column classes", "same"),
         _node("Cast", "same", "hot", to=TensorProto.FLOAT), _node("Mul", "s hot", "picked"),
         *_MEAN], None),
}  # fmt: skip
EACH = pytest.mark.parametrize("name", FORMS)


def _model(name: str):
    arrays = {
        "w": np.linspace(-1, 1, 5 * CLASSES, dtype=np.float32).reshape(5, CLASSES),
        "one": np.array([1]), "out": np.array(-1), "first": np.array(0),
        "rows": np.arange(N)[:, None], "classes": np.arange(CLASSES)[None],
    }  # fmt: skip
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [N, 5]),
        helper.make_tensor_value_info("labels", TensorProto.INT64, [N]),
    ]
    loss = helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])
    held = [numpy_helper.from_array(array, key) for key, array in arrays.items()]
    graph = helper.make_graph(FORMS[name][0], "net", ends, [loss], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return decode(parse(proto.SerializeToString(), name), Path(name))


def _program(name: str):
    return et.compile(_model(name), loss="output", minibatch=N, microbatch=N)


def _labels(last: int) -> np.ndarray:
    return np.array([0, 2, 1, last])


X = np.linspace(-1, 1, N * 5, dtype=np.float32).reshape(N, 5)


@EACH
@pytest.mark.parametrize("label", [CLASSES, 1000, -2])
def test_a_label_that_is_no_class_is_refused_by_sample(name, label):
    with et.Trainer(_program(name)) as trainer:
        before = trainer.step({"x": X, "labels": _labels(2)}).loss
        assert np.isfinite(before)
        with pytest.raises(DataError, match=rf"'labels': sample 3: value {label}\b.* 0 to 2"):
            trainer.step({"x": X, "labels": _labels(label)})


@pytest.mark.parametrize("name", [name for name, (_, ignored) in FORMS.items() if ignored])
def test_the_label_that_a_loss_leaves_out_is_let_through(name, tmp_path):
    ignored = FORMS[name][1]
    program = _program(name)
    path = program.save(tmp_path / "net.edge")
    assert et.load_program(path).ignored == program.ignored == {"labels": ignored}
    with et.Trainer(program) as trainer:
        assert np.isfinite(trainer.step({"x": X, "labels": _labels(ignored)}).loss)


@EACH
def test_labels_of_a_file_are_checked_too(name, tmp_path):
    ignored, rest = FORMS[name][1], {"x": X, "y": np.zeros(N)}
    good = _labels(2 if ignored is None else ignored)
    np.savez(tmp_path / "good.npz", labels=good, **rest)
    np.savez(tmp_path / "bad.npz", labels=_labels(5), **rest)
    with et.Trainer(_program(name), data=f"npz:{tmp_path / 'good.npz'}") as trainer:
        trainer.fit(steps=1)
        assert np.isfinite(trainer.step({"x": X, "labels": _labels(1)}).loss)
    with (
        pytest.raises(DataError, match=r"sample 3: field 'labels': value 5\b.* 0 to 2"),
        et.Trainer(_program(name), data=f"npz:{tmp_path / 'bad.npz'}") as trainer,
    ):
        trainer.fit(steps=1)


def test_a_bundle_checks_the_same_labels():
    program = _program("left out")
    image = image_of(program, emit.tape_lengths(program), 0, 64)
    at = [k for k, value in image.literals.items() if value == -100]
    assert len(at) == 2  # in training and evaluation
    for place in at:
        field = place - 8 * layout.IGNORED
        found = [image.literals[field + 8 * w] for w in (layout.LIMIT, layout.CHECK_IGNORED)]
        assert found == [CLASSES, 1]


@pytest.mark.parametrize("form", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("label", [0, CLASSES + 1, 1000, -5])
def test_computed_labels_outside_the_classes_skip_the_step(form, label, monkeypatch):
    """Classes start at 1: no limit on the input says which numbers are classes."""
    counted = _node("Sub", "labels one", "own")
    nodes = [*_SCORES, counted, _node(form, f"{'z' if form[0] == 'S' else 's'} own", "loss")]
    monkeypatch.setitem(FORMS, form, (nodes, None))
    with et.Trainer(_program(form), verbose=False) as trainer:
        good = trainer.step({"x": X, "labels": np.array([1, 3, 2, 3])})
        assert np.isfinite(good.loss) and not good.skipped
        assert trainer.step({"x": X, "labels": np.array([1, 3, 2, label])}).skipped
