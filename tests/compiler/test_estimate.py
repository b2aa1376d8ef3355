"""Time estimates of plans: they depend on counts alone, and are close to measured runs."""

import time
from dataclasses import fields, replace
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
from edgetrain.kernels.cache import disk
from edgetrain.ops.registry import op
from examples.zoo import ZOO
from tests.digits_runs import MODEL
from tests.zoo_files import zoo_file

# One net for each kind of work; "digits" is the demo model.
NETS = (
    "digits", "mlp", "conv1d", "keyword", "resnet18", "vgg19", "mobilenet_v2", "alexnet",
    "transformer_encoder", "gru_classifier", "gpt", "autoencoder",
)  # fmt: skip
MINIBATCH, MICROBATCH, STEPS, ROUNDS = 8, 4, 64, 9


def planned(name: str, threads: int = 1, microbatch: int = MICROBATCH):
    """Return options, plan results and samples of a net."""
    if name == "digits":
        path, x, y = MODEL, [np.zeros((32, 1, 8, 8), np.float32)], np.arange(32) % 10
    else:
        net, path = ZOO[name], zoo_file(name)
        torch.manual_seed(0)
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
    """Return the CPU seconds that `fit` takes per minibatch, the best of several rounds."""
    with et.Trainer(program, data, threads=1, verbose=False) as trainer:
        trainer.fit(steps=STEPS)
        found = []
        for _ in range(ROUNDS):
            start, done = time.process_time(), trainer.steps
            trainer.fit(steps=STEPS)
            found.append((time.process_time() - start) / (trainer.steps - done))
    return min(found)


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure this machine's rates as `plan --calibrate` does, for one test."""
    monkeypatch.setattr(cost, "_measured", [])
    monkeypatch.setattr(cost, "disk", SimpleNamespace(write=lambda *_: None))
    cost.calibrate()


@pytest.mark.slow
@pytest.mark.usefixtures("calibrated")
@pytest.mark.parametrize("name", NETS)
def test_estimates_are_within_a_factor_of_two(name: str) -> None:
    model, options, (plan, _, facts), data = planned(name)
    said = seconds_per_minibatch(plan, MINIBATCH, 1)
    found = taken(assemble(plan, facts), data)
    assert 0.5 <= said / found <= 2.0, f"said {1e3 * said:.3f} ms, took {1e3 * found:.3f} ms"


def test_estimates_are_of_counts_alone() -> None:
    def said(threads: int, microbatch: int) -> float:
        plan = planned("digits", threads, microbatch)[2][0]
        return seconds_per_minibatch(plan, MINIBATCH, threads)

    assert said(1, 4) == said(1, 4)
    assert said(2, 4) < said(1, 4) < said(1, 1)  # threads share work; microbatches are staged
    plan = planned("digits")[2][0]
    assert said(1, 4) > 0.8 * plan.cost


def test_measured_rates_change_estimates_and_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_measured", [cost.Rates()])
    plan, front, _ = planned("digits")[2]
    said = seconds_per_minibatch(plan, MINIBATCH, 1)
    cost._measured.append(replace(cost.Rates(), flops=1e9, nbytes=40e9, step=1e-3))
    assert seconds_per_minibatch(plan, MINIBATCH, 1) > 10 * said
    again, others, _ = planned("digits")[2]
    assert (again.schedule, again.offsets) == (plan.schedule, plan.offsets)
    assert [plan.cost for plan in others] == [plan.cost for plan in front]


# 3 x 3 convolution on 8 x 8 pixels: channels, filters, groups -> elements of each op by rate.
ARRANGED = {
    (3, 4, 1): {"conv": {"maps": 27}, "conv_dx": {"maps": 36}, "conv_dw": {"weights": 27}},
    (6, 6, 6): {"conv": {"planes": 54}, "conv_dx": {"planes": 54}, "conv_dw": {"planes": 54}},
    (6, 4, 2): {"conv": {"maps": 54}, "conv_dx": {"maps": 36}, "conv_dw": {"weights": 54}},
}


class Net(torch.nn.Module):
    """The test looks at the second convolution, which has all three ops."""

    def __init__(self, channels: int, filters: int, groups: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(2, channels, 1)
        self.conv = torch.nn.Conv2d(channels, filters, 3, padding=1, groups=groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(self.first(x)).flatten(1)


@pytest.mark.parametrize("sizes", ARRANGED)
def test_convolutions_arrange_the_windows_that_they_read(
    tmp_path: Path, sizes: tuple[int, int, int]
) -> None:
    path = tmp_path / "net.onnx"
    export_torch(Net(*sizes), (torch.zeros(2, 2, 8, 8),), path)
    options = make_options(loss="mse", minibatch=4, microbatch=4, optimizer=et.SGD(lr=0.1))
    tape = plan_model(et.load_onnx(path), options, None)[0].candidate.train
    found = {
        node.op: op(node.op).arranged(node, tape.graph)
        for node in tape.graph.nodes
        if node.attrs.get("ph") == 1
    }
    pixels = 4 * 8 * 8
    assert found == {
        name: {rate: pixels * count for rate, count in rates.items()}
        for name, rates in ARRANGED[sizes].items()
    }
    assert {rate for by_rate in found.values() for rate in by_rate} <= {
        field.name for field in fields(cost.Rates)
    }


@pytest.mark.usefixtures("own_cache")
def test_a_rates_file_of_another_build_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_measured", [])
    disk.write("rates.json", "rates.json", b'{"flops": 1e9, "nbytes": 1e9, "step": 1e-6}')
    cost._kept.cache_clear()
    assert cost.rates() == cost.Rates()
    measured = cost.calibrate()
    cost._kept.cache_clear()
    cost._measured.clear()
    assert cost.rates() == measured != cost.Rates()
    cost._kept.cache_clear()
