"""`find_lr`: rates grow, the loss is smoothed, and the rate of its steepest fall is suggested.

The Trainer is left unchanged.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.runtime.training.rate_finder import LearningRates, find_rates, smoothed
from tests.runtime.online_net import compiled, drawn, exported

X, Y = drawn(60)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Models without and with batch-norm."""
    return {norm: exported(tmp_path_factory.mktemp("rates"), norm)[1] for norm in (False, True)}


def bits(trainer: et.Trainer) -> dict[str, bytes]:
    state = {name: array.tobytes() for name, array in trainer.session.state().items()}
    return state | {"control": trainer.session.ints.tobytes()}


OPTIONS: dict[str, dict[str, Any]] = {
    "momentum": {},
    "adamw": {"optimizer": et.AdamW(lr=0.01)},
    "fp16": {"precision": "fp16", "optimizer": et.Adam(lr=0.01)},
    "8 bits": {"precision": "fp16", "model_memory": "int8"},
    "sparse": {"density": 0.5, "rewiring": "set"},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_find_lr_leaves_a_trainer_as_it_was(files, kind: str) -> None:
    program = compiled(files[True], **OPTIONS[kind])
    ends = []
    for finds in (False, True):
        seen: list[Any] = []
        hook = et.Callback(on_step=lambda trainer, result, seen=seen: seen.append(result))
        with et.Trainer(
            program, (X, Y), callbacks=hook, schedule=et.Schedule("cosine"), total_steps=10
        ) as trainer:
            trainer.fit(steps=5)
            before = bits(trainer)
            if finds:
                found = et.find_lr(trainer, steps=30)
                assert len(found.rates) == len(found.losses) <= 30 and found.lr > 0
                assert bits(trainer) == before
            trainer.fit(steps=5)
            ends.append((bits(trainer), seen, trainer.history["loss"]))
    assert ends[0] == ends[1]


def test_find_lr_restores_a_schedule_that_the_rates_do_not_fit(files) -> None:
    """Starting at the last rate tried, the schedule would overflow."""
    schedule = et.Schedule("exponential", gamma=1000.0)
    with et.Trainer(compiled(files[False]), (X, Y), schedule=schedule, total_steps=12) as trainer:
        before = bits(trainer)
        et.find_lr(trainer, start_lr=1e6, end_lr=1e7, steps=12)
        assert bits(trainer) == before and trainer.lr == pytest.approx(0.1)


def test_find_lr_on_a_model_within_a_budget_suggests_what_trains(files) -> None:
    model = et.load_onnx(files[False])
    found = et.find_lr(
        model, (X, Y), budget=10**6, minibatch=16, optimizer=et.SGD(lr=9.0, momentum=0.9),
        end_lr=1e5, verbose=False,
    )  # fmt: skip
    ratios = np.diff(np.log(found.rates))
    assert found.diverged and found.rates[0] == 1e-7 and np.allclose(ratios, ratios[0])
    assert ratios[0] == pytest.approx(math.log(1e12) / 99)
    assert found.losses == smoothed(found.raw_losses) and found.losses[-1] > 3 * min(found.losses)
    program = compiled(files[False])
    with et.Trainer(program, (X, Y), lr=found.lr) as trainer:
        losses = trainer.fit(epochs=30)["loss"]
    assert losses[-1] < 0.5 * losses[0] and 1e-3 < found.lr < 10
    assert repr(found).startswith(f"LearningRates(lr {found.lr:.3g}; ")
    again = et.find_lr(program, (X, Y), end_lr=1e5)  # the same samples and weights
    assert again.raw_losses[:9] == pytest.approx(found.raw_losses[:9], rel=1e-5)


def test_find_lr_suggests_the_steepest_fall_of_the_smoothed_loss() -> None:
    rates = [10 ** (k / 10) for k in range(60)]
    losses = [3 - 2 / (1 + math.exp(-(k - 30) / 3)) for k in range(60)]
    found = LearningRates(rates, losses, False, 60)
    slopes = np.gradient(np.array(found.losses[6:-1]))
    assert found.lr == rates[6 + int(slopes.argmin())]
    axes = found.plot()
    assert axes.get_xscale() == "log" and [*axes.lines[0].get_xdata()] == rates
    assert axes.lines[2].get_xdata()[0] == found.lr
    for rising, diverged, words in (
        (losses[::-1], False, "never fell"),
        (losses[:2], True, "diverged after 2"),
        ([], True, "diverged after 0"),
    ):
        other = LearningRates(rates[: len(rising)], rising, diverged, 60)
        assert "no suggestion" in repr(other)
        with pytest.raises(et.RunError, match=words):
            other.lr  # noqa: B018


def test_find_lr_refuses_what_it_cannot_use(files) -> None:
    program, model = compiled(files[False]), str(files[False])
    for call, words in (
        (lambda: et.find_lr(program), "data"),
        (lambda: et.find_lr(program, (X, Y), budget=1), "budget"),
        (lambda: et.find_lr(program, (X, Y), start_lr=1.0, end_lr=0.5), "start_lr 1, end_lr 0.5"),
        (lambda: et.find_lr(program, (X, Y), steps=3), "steps 3"),
        (lambda: et.find_lr(program, (X, Y), stop=1), "stop 1"),
        (lambda: et.find_lr(program, iter([(X, Y)])), "generator"),
        (lambda: et.find_lr(model, (X, Y), minibach=16), "minibach"),
        (lambda: et.find_lr(et.Trainer(program)), "find_lr: this Trainer has no data"),
    ):
        with pytest.raises(et.UsageError, match=words):
            call()
    with pytest.raises(et.BudgetError):
        et.find_lr(model, (X, Y), budget=100)


def test_find_lr_takes_batches_and_leaves_them(files) -> None:
    batches = [(X[k : k + 16], Y[k : k + 16]) for k in range(0, 48, 16)]
    with et.Trainer(compiled(files[False]), batches) as trainer:
        trainer.fit(steps=2)  # in the middle of an epoch
        before = bits(trainer)
        found = find_rates(trainer, steps=20)
        assert len(found.rates) == 20 and bits(trainer) == before
        trainer.fit(steps=4)
        state = bits(trainer)
    with et.Trainer(compiled(files[False]), batches) as trainer:
        trainer.fit(steps=2)
        trainer.fit(steps=4)
        assert bits(trainer) == state


def test_find_lr_in_a_callback_is_refused(files) -> None:
    hook = et.Callback(on_step=lambda trainer, result: et.find_lr(trainer))
    with (
        et.Trainer(compiled(files[False]), (X, Y), callbacks=hook) as trainer,
        pytest.raises(et.UsageError, match="on_step"),
    ):
        trainer.fit(steps=1)


def test_find_lr_is_a_command(
    files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [",".join([*map(str, x), str(y)]) for x, y in zip(X.tolist(), Y, strict=True)]
    head = ",".join([*(f"f{k}" for k in range(X.shape[1])), "kind"])
    Path("data.csv").write_text("\n".join([head, *rows]))
    np.savez("auto.npz", x=X[:, :6])
    argv = ["find-lr", str(files[False]), "--data", "csv:data.csv", "--label", "kind",
            "--minibatch", "16", "--steps", "40", "--start-lr", "1e-4",
            "--end-lr", "100"]  # fmt: skip
    assert main([*argv, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["rates"][0] == 1e-4 and facts["rates"][-1] < 100 and facts["diverged"]
    assert facts["lr"] in facts["rates"] and len(facts["losses"]) == len(facts["raw_losses"])
    assert main([*argv, "--picture", "lr.svg"]) == 0
    shown = capsys.readouterr().out
    assert f"--lr {facts['lr']:.2g}" in shown and "diverged" in shown
    assert "<svg" in Path("lr.svg").read_text() and not Path("runs").exists()
    wrong = {"--end-lr": "1e-5", "--steps": "5", "--picture": "lr.txt", "--label": "none"}
    for option, value in wrong.items():
        assert main([*argv, option, value]) == (4 if option == "--label" else 2), option
    auto = ["--data", "npz:auto.npz", "--loss", "mse", "--target-input", "x"]
    assert main(["find-lr", str(files[False]), *auto]) == 4  # [6] is not a target of [3]
    assert "auto.npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "settings"),
    [("--max-grad-norm", {"max_grad_norm": 1e-3}), ("--loss-scale", {"loss_scale": 3.0})],
)
def test_find_lr_clips_and_scales_a_program_as_asked(
    files, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, settings: dict
) -> None:
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    (value,) = settings.values()

    def losses(name: str, *options: object, **compiled_in) -> list[float]:
        edge = compiled(files[False], **compiled_in).save(tmp_path / f"{name}.edge")
        data = ("--data", f"npz:{tmp_path / 'data.npz'}", "--steps", 12, "--json")
        assert main([str(part) for part in ("find-lr", edge, *data, *options)]) == 0
        return json.loads(capsys.readouterr().out)["losses"]

    assert losses("plain") != losses("asked", option, value) == losses("own", **settings)
