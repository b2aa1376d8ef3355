"""Structured ONNX mutants: each trains or is refused in one line, with no crash or long wait."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.compiler.bind import bind
from edgetrain.errors import EdgetrainError
from edgetrain.ops.model import Model

from .children import Ended, fault, run
from .onnx_mutants import mutant
from .onnx_nets import NETS

BATCH = 2
_MOST = 2**22  # maximum elements of an input


def _gradients(path: Path) -> str:
    """Run one microbatch with random inputs for the model."""
    model = et.load_onnx(path)
    graph = bind(model, BATCH, _dims(model)).graph
    shape = graph.values[graph.outputs[0]].shape
    rng = np.random.default_rng(0)
    inputs = {}
    for name in graph.inputs:
        value = graph.values[name]
        if value.size > _MOST:
            raise EdgetrainError(f"input {name!r} is too large to be made")
        real = value.dtype == "f32"
        inputs[name] = (
            rng.standard_normal(value.shape).astype(np.float32)
            if real
            else rng.integers(0, 2, value.shape).astype(np.int32)
        )
    target = rng.standard_normal(shape).astype(np.float32)
    loss, found = et.loss_and_gradients(model, inputs, target, loss="mse", dims=_dims(model))
    return f"{loss} {len(found)}"


def _dims(model: Model) -> dict[str, int]:
    names = [d or f"{i.name}.{k}" for i in model.inputs for k, d in enumerate(i.dims) if k]
    return {name: 3 for name in names if isinstance(name, str)}


def _train(path: Path) -> int:
    """Train on the samples next to the model, which fit the unchanged net."""
    out = path.parent / "run"
    shutil.rmtree(out, ignore_errors=True)
    command = ["train", str(path), "--data", f"npz:{path.with_suffix('.npz')}", "--epochs", "1"]
    status = main([*command, "--minibatch", "2", "--loss", "mse", "--out", str(out)])
    assert status in (0, 1, 2, 3, 4), status
    return status


def _samples(net: str, path: Path) -> None:
    """Write eight samples with the shapes of the net's input and output."""
    path.with_suffix(".onnx").write_bytes(NETS[net]().SerializeToString())
    graph = bind(et.load_onnx(path.with_suffix(".onnx")), 8).graph
    given, made = graph.values[graph.inputs[0]], graph.values[graph.outputs[0]]
    rng = np.random.default_rng(0)
    x = rng.standard_normal(given.shape).astype(np.float32)
    x = x if given.dtype == "f32" else rng.integers(0, 9, given.shape)
    np.savez(path, x=x, y=rng.standard_normal(made.shape).astype(np.float32))


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """Compile the kernels of the unchanged nets before any child is timed."""
    folder = tmp_path_factory.mktemp("warm")
    for name, net in NETS.items():
        (folder / name).write_bytes(net().SerializeToString())
        _gradients(folder / name)


def _mutants(folder: Path, seeds: range, call) -> tuple[list, Counter[str]]:
    """Return (faults, how the children ended)."""
    wrong, ends = [], Counter[str]()
    names = sorted(NETS)
    for seed in seeds:
        name = names[seed % len(names)]
        path = folder / name / "model.onnx"
        if not path.parent.exists():
            path.parent.mkdir()
            _samples(name, path.with_suffix(".npz"))
        path.write_bytes(mutant(NETS[name](), seed))
        ended: Ended = run(lambda path=path: call(path))
        ends[ended.how] += 1
        if found := fault(ended):
            wrong.append((name, seed, found))
    return wrong, ends


def test_onnx_mutants_have_gradients_or_are_refused(warm, tmp_path):
    wrong, ends = _mutants(tmp_path, range(30), _gradients)
    assert wrong == []
    assert ends["returned"] >= 3, ends


@pytest.mark.slow
@pytest.mark.forks
def test_onnx_mutants_have_gradients_or_are_refused_in_thousands(warm, tmp_path):
    wrong, ends = _mutants(tmp_path, range(1000, 3000), _gradients)
    assert wrong == []
    assert ends["returned"] >= 200, ends


def test_onnx_mutants_are_trained_or_refused(warm, tmp_path):
    wrong, _ = _mutants(tmp_path, range(100, 105), _train)
    assert wrong == []


@pytest.mark.slow
@pytest.mark.forks
def test_onnx_mutants_are_trained_or_refused_in_hundreds(warm, tmp_path):
    wrong, ends = _mutants(tmp_path, range(4000, 4200), _train)
    assert wrong == []
    assert ends["returned"] == 200, ends
