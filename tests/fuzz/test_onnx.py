"""Structured ONNX mutants: each trains or is refused in a line, without a crash or a long wait."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import EdgetrainError
from edgetrain.ops.bind import bind
from edgetrain.ops.model import Model

from .children import Ended, fault, run
from .onnx_mutants import mutant
from .onnx_nets import NETS

BATCH = 2
_MOST = 2**22  # elements of an input that is worth making


def _gradients(path: Path) -> str:
    """One microbatch of whatever the model takes."""
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
            rng.standard_normal(value.shape).astype(np.float32) if real
            else rng.integers(0, 2, value.shape).astype(np.int32)
        )  # fmt: skip
    target = rng.standard_normal(shape).astype(np.float32)
    loss, found = et.loss_and_gradients(model, inputs, target, loss="mse", dims=_dims(model))
    return f"{loss} {len(found)}"


def _dims(model: Model) -> dict[str, int]:
    names = [d or f"{i.name}.{k}" for i in model.inputs for k, d in enumerate(i.dims) if k]
    return {name: 3 for name in names if isinstance(name, str)}


def _train(path: Path) -> int:
    """The command on samples of the unchanged net's shape; a refusal is status 2 to 4."""
    data, out = path.with_suffix(".npz"), path.with_suffix(".run")
    command = ["train", str(path), "--data", f"npz:{data}", "--epochs", "1", "--minibatch", "2"]
    status = main([*command, "--loss", "mse", "--out", str(out), "--validation", "0"])
    assert status in (0, 1, 2, 3, 4), status
    return status


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """Kernels of the unchanged nets are compiled before any child is timed."""
    folder = tmp_path_factory.mktemp("warm")
    for name, net in NETS.items():
        (folder / name).write_bytes(net().SerializeToString())
        _gradients(folder / name)


def _mutants(folder: Path, seeds: range, call) -> tuple[list, Counter[str]]:
    """(what is wrong, how the children ended)."""
    wrong, ends = [], Counter[str]()
    names = sorted(NETS)
    for seed in seeds:
        name = names[seed % len(names)]
        path = folder / "model.onnx"
        path.write_bytes(mutant(NETS[name](), seed))
        ended: Ended = run(lambda path=path: call(path))
        ends[ended.how] += 1
        if found := fault(ended):
            wrong.append((name, seed, found))
    return wrong, ends


def test_onnx_mutants_train_or_are_refused(warm, tmp_path):
    wrong, ends = _mutants(tmp_path, range(40), _gradients)
    assert wrong == []
    assert ends["returned"] >= 4, ends
