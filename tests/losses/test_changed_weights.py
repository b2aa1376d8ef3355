"""Loss weights that a run changed: evaluations of its directory use them."""

import json
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main

from .test_several import LOSSES, drawn, two_heads


def test_eval_uses_the_loss_weights_that_the_run_changed(tmp_path: Path, capsys) -> None:
    data = drawn()
    np.savez(tmp_path / "d.npz", **data)
    program = et.compile(two_heads().model("class", "box"), losses=LOSSES, minibatch=8)
    with et.Trainer(program, data, tmp_path / "run") as trainer:
        trainer.fit(steps=2)
        trainer.loss_weights["box"] = 10.0
        trainer.fit(steps=2)
        expected = trainer.evaluate(data)
    argv = ["eval", str(tmp_path / "run"), "--data", f"npz:{tmp_path / 'd.npz'}", "--json"]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loss"] == pytest.approx(expected["loss"])
    assert found["loss"] == pytest.approx(found["class_loss"] + 10 * found["box_loss"])
