"""CheckpointState files whose fields are not what was written."""

from pathlib import Path

import numpy as np
import pytest

from edgetrain.errors import CheckpointError, EdgetrainError
from edgetrain.ort.api import CheckpointState
from edgetrain.ort.module import Module
from edgetrain.runtime.run.checkpoint import load_checkpoint, save_checkpoint
from tests.mutants import mutants
from tests.ort.test_walk_through import BATCH, digits, made, model, module  # noqa: F401


@pytest.fixture
def trained(model, tmp_path: Path):  # noqa: F811
    """A state after one step, with the optimizer's, and the module's file."""
    net, optimizer, state = made(model, tmp_path)
    x, y = digits("train")
    net(x[:BATCH], y[:BATCH].astype(np.int32))
    optimizer.step()
    state.properties["epoch"] = 3
    path = tmp_path / "whole"
    CheckpointState.save_checkpoint(state, path, include_optimizer_state=True)
    return path, tmp_path / "training_model.onnx"


def test_mutants_of_a_state_are_refused_in_one_line_or_do_no_harm(trained, tmp_path: Path) -> None:
    path, artifact = trained
    found = load_checkpoint(path)
    net = Module(artifact, CheckpointState.load_checkpoint(path))
    refused = 0
    for what, meta in mutants(found.meta):
        if not isinstance(meta, dict):
            continue
        save_checkpoint(tmp_path / "bad", found.tensors, meta, keep_previous=False)
        try:
            state = CheckpointState.load_checkpoint(tmp_path / "bad")
            net._restore(state)
            CheckpointState.save_checkpoint(state, tmp_path / "again")
        except EdgetrainError as error:
            assert "\n" not in str(error) and str(error).isprintable(), what
            refused += 1
        else:
            assert meta["kind"] == "ort" and {*meta["counters"]} == {*found.meta["counters"]}, what
    assert refused > 150


def test_tensors_of_other_shapes_are_refused(trained, tmp_path: Path) -> None:
    path, artifact = trained
    found = load_checkpoint(path)
    name = next(iter(found.tensors))
    for array in (
        np.zeros(3, np.float32),
        np.zeros((0, 4), np.int64),
        found.tensors[name][..., :0],
    ):
        bad = {**found.tensors, name: array}
        save_checkpoint(tmp_path / "bad", bad, found.meta, keep_previous=False)
        with pytest.raises(CheckpointError, match="its tensors do not match"):
            Module(artifact, CheckpointState.load_checkpoint(tmp_path / "bad"))
