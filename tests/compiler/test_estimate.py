"""What a plan says of time: from counts alone, and near what a run takes."""

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler import cost, plan_model
from edgetrain.compiler.advice.estimate import seconds_per_minibatch
from edgetrain.compiler.tapes.assemble import assemble
from edgetrain.exporters import export_torch
from examples.zoo import ZOO
from tests.digits_runs import MODEL

# Each of another kind of work; "digits" is the demo's.
NETS = (
    "digits", "mlp", "conv1d", "keyword", "resnet18", "vgg19", "mobilenet_v2", "alexnet",
    "transformer_encoder", "gru_classifier", "gpt", "autoencoder",
)  # fmt: skip
MINIBATCH, MICROBATCH, STEPS, ROUNDS = 8, 4, 8, 9


def planned(name: str, folder: Path, threads: int = 1, microbatch: int = MICROBATCH):
    """Options, plan and facts of a net, and its samples."""
    if name == "digits":
        path, x, y = MODEL, [np.zeros((32, 1, 8, 8), np.float32)], np.arange(32) % 10
    else:
        net, path = ZOO[name], folder / f"{name}.onnx"
        torch.manual_seed(0)
        if not path.exists():
            export_torch(net.build("small"), net.example_inputs(2, "small"), path)
        assert net.batch_dim == 0
        x = [part.numpy() for part in net.example_inputs(32, "small")]
        y = net.target(32, "small").numpy()
    options = make_options(
        loss="cross_entropy" if name == "digits" else ZOO[name].loss,
        minibatch=MINIBATCH,
        microbatch=microbatch,
        threads=threads,
        optimizer=et.SGD(lr=1e-6),
    )
    model = et.load_onnx(path)
    return model, options, plan_model(model, options, None), (x[0], y)


def taken(program: et.Program, data: tuple[np.ndarray, np.ndarray]) -> float:
    """The process' own seconds of a minibatch of `fit`: the least of several rounds."""
    with et.Trainer(program, data, threads=1) as trainer:
        trainer.fit(steps=STEPS)
        found = []
        for _ in range(ROUNDS):
            start = time.process_time()
            trainer.fit(steps=trainer.steps + STEPS)
            found.append((time.process_time() - start) / STEPS)
    return min(found)


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's rates, as `plan --calibrate` measures them, kept for one test."""
    monkeypatch.setattr(cost, "_measured", [])
    monkeypatch.setattr(cost, "disk", SimpleNamespace(write=lambda *_: None))
    cost.calibrate()


@pytest.mark.slow
@pytest.mark.usefixtures("calibrated")
@pytest.mark.parametrize("name", NETS)
def test_estimates_are_within_a_factor_of_two(tmp_path: Path, name: str) -> None:
    model, options, (plan, _, facts), data = planned(name, tmp_path)
    said = seconds_per_minibatch(plan, MINIBATCH, 1)
    found = taken(assemble(plan, facts), data)
    assert 0.5 <= said / found <= 2.0, f"said {1e3 * said:.3f} ms, took {1e3 * found:.3f} ms"


def test_estimates_are_of_counts_alone(tmp_path: Path) -> None:
    def said(threads: int, microbatch: int) -> float:
        plan = planned("digits", tmp_path, threads, microbatch)[2][0]
        return seconds_per_minibatch(plan, MINIBATCH, threads)

    assert said(1, 4) == said(1, 4)
    assert said(2, 4) < said(1, 4) < said(1, 1)  # threads share, microbatches are staged
    plan = planned("digits", tmp_path)[2][0]
    assert said(1, 4) > 0.8 * plan.cost
