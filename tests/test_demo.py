"""`et.demo()` and `edgetrain demo`: they need no file, and their output is true."""

import json
from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.demo import MODEL
from tests.digits_runs import MODEL as EXAMPLE


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_demo_has_the_model_of_the_example() -> None:
    assert MODEL.read_bytes() == EXAMPLE.read_bytes()


def test_demo_trains_within_its_budget_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with et.demo(160_000, epochs=2, verbose=True) as trainer:
        arena, tested = trainer.program.arena_nbytes, trainer.history.epochs[-1]["evaluation"]
        assert arena <= 160_000 and tested.items() <= trainer.evaluate(verbose=False).items()
    shown = capsys.readouterr().err
    assert f"arena  {arena:,} bytes" in shown and "of a budget of 160,000 bytes" in shown
    assert f"accuracy {100 * tested['accuracy']:.2f} %" in shown
    assert tested["accuracy"] > 0.8 and not list(Path().iterdir())
    with pytest.raises(et.BudgetError, match="training needs"):
        et.demo(1000)
    with pytest.raises(et.UsageError, match="epochs 0"):
        et.demo(epochs=0)


def test_demo_command_shows_account_progress_and_accuracy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--budget", "160000", "--epochs", "1", "--json"]) == 0
    start, *_, done = map(json.loads, capsys.readouterr().out.splitlines())
    assert start["arena_nbytes"] == done["arena_nbytes"] <= 160_000
    assert (done["event"], done["step"], done["out"]) == ("done", 44, None)
    assert not list(Path().iterdir())
    assert main(["demo", "--budget", "160000", "--epochs", "1", "--out", "runs/a"]) == 0
    out, err = capsys.readouterr()
    assert f"arena  {done['arena_nbytes']:,} bytes" in out and "epoch 1: loss" in err
    assert f"accuracy {100 * done['accuracy']:.2f} %" in out.splitlines()[-3]
    assert main(["export", "runs/a", "-o", "trained.onnx"]) == 0
    assert main(["demo", "--budget", "1000"]) == 3 and main(["demo", "--out", ""]) == 2
