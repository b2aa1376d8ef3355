"""Fused updates: the bits of updates at a step's end, and steps that return to a checkpoint."""

from pathlib import Path

import numpy as np
import pytest
import torch

import edgetrain as et
from edgetrain.errors import RunError, UsageError
from edgetrain.exporters import export_torch
from edgetrain.runtime.run.checkpoint import latest
from edgetrain.runtime.run.rollback import MOST
from tests.digits_runs import digits_program
from tests.optim.cases import DIGITS
from tests.quick import slow_between, slow_except
from tests.runtime.conftest import assert_same_bits
from tests.runtime.models import write_forked

pytestmark = pytest.mark.usefixtures("every_rung")

STEPS = 10
CASES = {
    **{name: {"optimizer": one} for name, one in DIGITS.items() if one.fusable},
    "int8": {"model_memory": "int8"},
    "sparse": {"density": 0.3},
    "sparse int8 adafactor": {
        "density": 0.3,
        "model_memory": "int8",
        "optimizer": et.Adafactor(lr=0.02),
    },
    "fp16": {"precision": "fp16", "loss_scale": 1024.0, "saved": "int8"},
    "frozen": {"train": ("conv3.*", "norm*"), "freeze_bn": True},
}


def program(budget=None, **options):
    return digits_program(budget, microbatch=16, **options)


def state_after(compiled, out, steps=STEPS, data="digits", **settings):
    trainer = et.Trainer(compiled, data, out, **settings)
    try:
        trainer.fit(steps=steps)
        return {name: array.copy() for name, array in trainer.session.state().items()}
    finally:
        trainer.close()


@pytest.mark.parametrize("case", slow_except(CASES, "adam", "sparse int8 adafactor", "fp16"))
def test_fused_updates_have_the_bits_of_others_in_every_plan(case: str, tmp_path: Path) -> None:
    options = CASES[case]
    expected = state_after(program(**options), None)
    fastest = program(fused_update=True, **options)
    least = program(fastest.account["min_budget_nbytes"], fused_update=True, **options)
    assert not any(slot.role == "accumulator" for slot in fastest.persistent)
    for name, compiled in {"fastest": fastest, "least": least}.items():
        assert_same_bits(state_after(compiled, tmp_path / name), expected)
    many = program(fused_update=True, threads=3, **options)
    for threads in (1, 3):
        found = state_after(many, tmp_path / f"threads-{threads}", threads=threads)
        assert_same_bits(found, expected)


LAYERS = {name: one for name, one in DIGITS.items() if not one.sums}


@pytest.mark.parametrize("name", slow_between(LAYERS, 3))
def test_layers_of_the_pool_are_updated_one_by_one(name: str, tmp_path: Path) -> None:
    model = et.load_onnx(write_forked(tmp_path / "forked.onnx", blocks=4))
    options = {"density": 0.3, "minibatch": 16, "microbatch": 16, "optimizer": LAYERS[name]}
    if name == "adamw":
        options |= {"precision": "fp16", "loss_scale": 512.0}
    expected = state_after(et.compile(model, **options), None)
    fused = et.compile(model, fused_update=True, **options)
    least = fused.account["min_budget_nbytes"]
    kernels = [row[0] for row in fused.kernels]
    assert f"csr_{LAYERS[name].kernel}" in kernels
    for k, budget in enumerate((None, least)):
        compiled = et.compile(model, budget=budget, fused_update=True, **options)
        assert_same_bits(state_after(compiled, tmp_path / str(k)), expected)


@pytest.mark.parametrize("allow", [(), ("slices",)])
def test_a_table_that_is_tied_to_the_head_is_updated_after_both(allow, tmp_path: Path) -> None:
    model = _tied(tmp_path / "tied.onnx")
    options = {"minibatch": 4, "microbatch": 4, "allow": allow, "optimizer": et.AdamW(lr=1e-2)}
    draw = np.random.default_rng(0)
    data = tuple(draw.integers(0, 700, (16, 6)).astype(np.int32) for _ in "xy")
    expected = state_after(et.compile(model, **options), None, 8, data)
    fused = et.compile(model, fused_update=True, **options)
    least = et.compile(
        model, budget=fused.account["min_budget_nbytes"], fused_update=True, **options
    )
    for k, compiled in enumerate((fused, least)):
        assert_same_bits(state_after(compiled, tmp_path / str(k), 8, data), expected)


def _tied(path: Path):
    """Words in, words out: one table at both ends."""
    import torch
    from torch import nn

    from edgetrain.exporters import export_torch

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.inner = nn.Embedding(700, 16), nn.Linear(16, 16)
            self.head = nn.Linear(16, 700, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x):
            return self.head(torch.tanh(self.inner(self.table(x))))

    torch.manual_seed(0)
    export_torch(Words(), (torch.randint(700, (2, 6)),), path)
    return et.load_onnx(path)


def test_the_least_plan_is_smaller_by_most_of_the_gradients() -> None:
    plain, fused = (program(fused_update=fused).account for fused in (False, True))
    saved = plain["min_budget_nbytes"] - fused["min_budget_nbytes"]
    assert saved > plain["by_kind"]["grads"] // 2


def _digits(*broken: int):
    """160 digits in minibatches of 16; minibatches with a broken sample overflow."""
    draw = np.random.default_rng(0)
    x, y = draw.uniform(size=(160, 1, 8, 8)).astype(np.float32), np.arange(160) % 10
    x[list(broken)] = 3e38
    return x, y


def test_a_step_that_fails_is_passed_over_as_without_fused_updates(tmp_path: Path) -> None:
    data, said = _digits(7, 90), []
    expected = state_after(program(), None, 25, data)
    trainer = et.Trainer(
        program(fused_update=True),
        data,
        tmp_path,
        save_steps=4,
        on_event=lambda event: said.append(event),
    )
    trainer.fit(steps=25)
    assert_same_bits(dict(trainer.session.state()), expected)
    failed = latest(tmp_path).meta["failed"]
    warnings = [e["message"] for e in said if e["event"] == "warning"]
    assert 2 <= len(failed) == len(warnings) and "going back to" in warnings[0]
    skipped = {e["step"] - 1 for e in said if e["event"] == "step" and e["skipped"]}
    reasons = {e["reason"] for e in said if e["event"] == "step" and e["skipped"]}
    assert skipped == set(failed) and reasons == {"gradients not finite"}
    trainer.close()


def test_a_resumed_run_knows_the_steps_that_failed(tmp_path: Path) -> None:
    data, compiled = _digits(7, 90), program(fused_update=True)
    expected = state_after(program(), None, 25, data)
    for steps in (6, 13, 25):
        trainer = et.Trainer(compiled, data, tmp_path, save_steps=5)
        trainer.resume()
        trainer.fit(steps=steps)
        found = {name: array.copy() for name, array in trainer.session.state().items()}
        trainer.close()
    assert_same_bits(found, expected)


def test_a_run_that_only_fails_is_stopped(tmp_path: Path) -> None:
    trainer = et.Trainer(program(fused_update=True), _digits(*range(0, 160, 2)), tmp_path)
    with pytest.raises(RunError, match=f"for the {MOST}th time|{MOST} steps in a row"):
        trainer.fit(epochs=10)
    trainer.close()


def test_steps_that_fail_one_at_a_time_do_not_stop_a_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("edgetrain.runtime.run.rollback.MOST", 3)
    data = _digits(7)
    expected = state_after(program(), None, 50, data)
    found = state_after(program(fused_update=True), tmp_path, 50, data, save_steps=1)
    assert_same_bits(found, expected)


class Inverse(torch.nn.Module):
    """Features, and the inverse of the first one, which overflows in backward if it is tiny."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1, 1))
        self.head = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([1 / (torch.abs(x[:, :1]) @ self.scale), x], 1))


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_failed_step_leaves_no_peak_of_its_state(name: str, tmp_path: Path) -> None:
    """The head's moments of the failed step are huge, and are stored before it fails."""
    torch.manual_seed(0)
    export_torch(Inverse(), (torch.rand(2, 4),), tmp_path / "net.onnx")
    x = np.random.default_rng(0).standard_normal((24, 4)).astype(np.float32)
    x[:, 0] = 1 + np.abs(x[:, 0])
    x[13] = [1e-25, 1e6, 0, 0]
    data = x, np.arange(24) % 3
    options = {"minibatch": 4, "microbatch": 4, "state": "fp16", "optimizer": DIGITS[name]}
    plain, fused = (
        et.compile(tmp_path / "net.onnx", fused_update=fused, **options) for fused in (False, True)
    )
    expected = state_after(plain, None, 20, data)
    assert_same_bits(state_after(fused, tmp_path / "run", 20, data, save_steps=1), expected)


def test_given_samples_that_fail_leave_the_last_checkpoint(tmp_path: Path) -> None:
    x, y = _digits(7)
    with et.Trainer(program(fused_update=True), out=tmp_path) as trainer:
        trainer.step(x[16:32], y[16:32])
        trainer.save()
        kept = {name: array.copy() for name, array in trainer.session.state().items()}
        trainer.step(x[32:48], y[32:48])
        result = trainer.step(x[:16], y[:16])
        assert result.skipped and trainer.steps == 3
        assert_same_bits(dict(trainer.session.state()), kept)
        assert not trainer.step(x[16:32], y[16:32]).skipped


def test_without_a_directory_training_is_refused_and_predictions_are_not() -> None:
    x, y = _digits()
    with et.Trainer(program(fused_update=True), (x, y)) as trainer:
        with pytest.raises(UsageError, match=r"fit: .* out \(--out DIR\)"):
            trainer.fit(steps=1)
        with pytest.raises(UsageError, match="step: .* compile without fused_update"):
            trainer.step(x[:16], y[:16])
        assert trainer.predict(x[:2]).shape == (2, 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"microbatch": 8}, "microbatch 8 .* minibatch 16"),
        ({"max_grad_norm": 1.0}, "max_grad_norm 1 can"),
        ({"precision": "fp16"}, "loss_scale, such as 1024"),
    ],
)
def test_what_needs_all_gradients_first_is_refused(options: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        digits_program(**{"microbatch": 16, "fused_update": True, **options})
