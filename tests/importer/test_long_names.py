"""Weights with too long names get short ones inside, and their own names in the trained file."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import edgetrain as et
from edgetrain.importer import load_onnx

from .models import model, node

FIRST = "model/dense/MatMul"
LONG = [";".join([FIRST, *["model/batch_normalization/gamma"] * 12, str(k)]) for k in range(3)]
LONG.append("é" * 200)


@pytest.fixture
def path(tmp_path):
    r = np.random.default_rng(0).standard_normal
    shapes = {LONG[0]: (4, 3), LONG[1]: (3,), LONG[2]: (3,), "mean": (3,), LONG[3]: (3,)}
    arrays = [numpy_helper.from_array(abs(r(s)).astype("f"), n) for n, s in shapes.items()]
    nodes = [
        onnx.helper.make_node("MatMul", ["x", LONG[0]], ["p"]),
        onnx.helper.make_node(
            "BatchNormalization", ["p", LONG[1], LONG[2], "mean", LONG[3]], ["n"]
        ),
        node("Relu", "n", "y"),
    ]
    place = tmp_path / "m.onnx"
    place.write_bytes(model(nodes, arrays).SerializeToString())
    return place


def test_long_names_have_unique_short_ones(path):
    found = load_onnx(path)
    assert found.parameters == (FIRST, f"{FIRST}~2", f"{FIRST}~3")
    assert found.buffers == ("mean", "é" * 64)


def test_trained_file_has_its_own_names(path, tmp_path):
    trainer = et.Trainer(et.compile(path, minibatch=4, microbatch=4))
    trainer.step(np.random.default_rng(1).standard_normal((4, 4)).astype("f"), [0, 1, 2, 0])
    out = trainer.export_onnx(tmp_path / "out.onnx")
    found = {t.name: numpy_helper.to_array(t) for t in onnx.load(out).graph.initializer}
    assert [*found] == [t.name for t in onnx.load(path).graph.initializer]
    for name, alias in zip(LONG, (FIRST, f"{FIRST}~2", f"{FIRST}~3", "é" * 64), strict=True):
        np.testing.assert_array_equal(found[name], trainer.state_dict()[alias])


def test_bundle_names_weights_shortly(path, tmp_path):
    et.bundle(et.compile(path, minibatch=4), tmp_path / "b")
    texts = [p.read_bytes().decode("latin-1") for p in (tmp_path / "b").iterdir() if p.is_file()]
    assert any(FIRST in text for text in texts)
    manifest = (tmp_path / "b" / "MANIFEST.json").read_text()
    assert LONG[0] not in manifest
