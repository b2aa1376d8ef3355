"""Kilobyte files with enormous values: planned, or refused before the values are computed."""

import re

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.cli import main
from edgetrain.compiler.bind import bind
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.errors import ModelError
from edgetrain.ops import allowance

from ..fuzz.children import fault, run
from .enormous import ENORMOUS, WORK, ints
from .models import model, node, tensor

NBYTES = 3 * 2**29
FAST = [name for name in ENORMOUS if name in WORK or name.endswith("2^31")]


def _write(name, folder):
    path = folder / "m.onnx"
    path.write_bytes(ENORMOUS[name]().SerializeToString())
    return path


@pytest.mark.parametrize("name", FAST)
def test_enormous_values_are_bound_or_refused(name, tmp_path):
    path = _write(name, tmp_path)
    options = make_options(loss="mse", minibatch=4, allow_constants=True)
    ended = run(lambda: len(build_graphs(Compilation(et.load_onnx(path), options), 4).train.nodes))
    assert not fault(ended, grown_nbytes=NBYTES)
    if ended.how == "refused" and "not supported" not in ended.detail:
        assert re.search(
            r"(node|input|output|minibatch) '.*[0-9].*(expected|at most)", ended.detail
        )


def test_what_a_rule_folds_is_kept_once(tmp_path):
    """Its nodes are made anew for each batch; the arrays of earlier ones are released."""
    model = et.load_onnx(_write("one-hot 2^24", tmp_path))
    kept = []
    for batch in (1, 2):
        bind(model, batch)
        kept.append(len(model.memory.folds))
    assert kept[0] == kept[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("command", [["inspect"], ["plan", "--budget", "64MB"]])
@pytest.mark.parametrize("name", ENORMOUS)
def test_enormous_values_are_planned_or_refused(name, command, tmp_path):
    path = _write(name, tmp_path)
    argv = [command[0], str(path), "--loss", "mse", *command[1:]]
    ended = run(lambda: main(argv))
    assert not fault(ended, grown_nbytes=NBYTES)
    assert ended.value in (0, 3, 4)


def _folded(count: int):
    """`count` steps from a constant to an operand of a product."""
    names = [f"val_{k}" for k in range(count + 1)]
    nodes = [node("Exp", a, b) for a, b in zip(names, names[1:], strict=False)]
    return model(
        [*nodes, node("MatMul", "x u", "h"), node("MatMul", f"h val_{count}", "y")],
        [tensor("val_0", 64, 64), tensor("u", 4, 64)],
    )


def _bound(proto, folder, batch=2):
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    options = make_options(loss="mse", minibatch=batch, allow_constants=True)
    return build_graphs(Compilation(et.load_onnx(path), options), batch)


def test_work_of_folding_is_limited(tmp_path, monkeypatch):
    steps = 3 * 64 * 64 * 8
    monkeypatch.setattr(allowance, "MAX_WORK", steps)
    _bound(_folded(3), tmp_path)
    with pytest.raises(
        ModelError, match=rf"node 'val_4'.*more than {steps} operations.*constant folding"
    ):
        _bound(_folded(4), tmp_path)


def test_bytes_of_folding_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(allowance, "MAX_NBYTES", 3 * 64 * 64 * 4)
    _bound(_folded(3), tmp_path)
    with pytest.raises(ModelError, match="node 'val_4'.*constants of 65536 bytes.*at most 49152"):
        _bound(_folded(4), tmp_path)


def test_folds_are_made_once_for_all_batches(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(_folded(3).SerializeToString())
    loaded = et.load_onnx(path)
    first = bind(loaded, 2).arrays["val_3"]
    monkeypatch.setattr(allowance, "MAX_WORK", 0)
    assert bind(loaded, 4).arrays["val_3"] is first


def test_folds_follow_the_batch(tmp_path):
    """Results cached for one batch size are not reused for another."""
    nodes = [node("Shape", "x", "s"), node("Expand", "row s", "e"), node("Exp", "e", "k"),
             node("Mul", "x k", "h"), node("MatMul", "h w", "y")]  # fmt: skip
    path = tmp_path / "m.onnx"
    row = np.arange(4, dtype=np.float32)
    path.write_bytes(model(nodes, [tensor("row", 1, 4), tensor("w", 4, 4)]).SerializeToString())
    loaded = et.load_onnx(path)
    for batch in (2048, 4096, 2048):
        found = bind(loaded, batch).arrays["k"]
        assert found.shape == (batch, 4)
        np.testing.assert_allclose(found[-1], np.exp(row * np.float32(0.01)), rtol=1e-6)


def test_lists_of_sizes_are_short(tmp_path):
    sizes = ints("s", *[1] * (allowance.MAX_LIST + 1))
    proto = model(
        [node("MatMul", "x w", "h"), node("Reshape", "h s", "y")], [tensor("w", 4, 4), sizes]
    )
    with pytest.raises(ModelError, match="node 'y'.*65537 numbers in input 1"):
        _bound(proto, tmp_path)


@pytest.mark.slow
def test_constant_half_a_gigabyte_large_is_bound(tmp_path):
    """An untrained table is used directly, and transposed through a view."""
    rows = 125 * 2**20 // 4
    big = tensor("big", 1)
    big.ClearField("raw_data")
    del big.dims[:]
    big.dims.extend([rows, 4])
    big.raw_data = bytes(16 * rows)
    nodes = [
        node("Transpose", "big", "turned", perm=[1, 0]), node("Slice", "turned a b", "cut"),
        node("MatMul", "x w", "h"), node("Gather", "cut i", "g"), node("Mul", "h g", "y"),
    ]  # fmt: skip
    arrays = [big, tensor("w", 4, 4), ints("a", 0, 0), ints("b", 4, 4), ints("i", 0)]
    path = tmp_path / "m.onnx"
    path.write_bytes(model(nodes, arrays).SerializeToString())
    options = make_options(loss="mse", minibatch=2, allow_constants=True)
    ended = run(lambda: len(build_graphs(Compilation(et.load_onnx(path), options), 2).train.nodes))
    assert ended.how == "returned" and ended.grown_nbytes < NBYTES, ended
