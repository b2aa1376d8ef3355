"""The best state of `KeepBest`: it belongs to one run, and goes with it."""

import json
import shutil
from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import CheckpointError, UsageError
from edgetrain.program import Program
from edgetrain.runtime.run.folder import BEST_FILE
from edgetrain.runtime.run.state import open_run
from tests.runtime.online_net import compiled, drawn, exported

X, Y = drawn(48)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("best"))[1]


@pytest.fixture(scope="module")
def net(path: Path) -> Program:
    return compiled(path)


def bits(trainer: et.Trainer) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in trainer.parameters.items()}


def kept(net: Program, out: Path) -> None:
    """A run of two epochs whose best is the first: none is better by 9."""
    best = et.KeepBest(min_delta=9.0, restore=False)
    with et.Trainer(net, (X, Y), out, callbacks=best) as trainer:
        trainer.fit(epochs=2)


@pytest.mark.parametrize("place", ["other", None])
def test_a_run_that_is_resumed_elsewhere_takes_its_best_state_along(
    net: Program, tmp_path: Path, place: str | None
) -> None:
    kept(net, tmp_path / "run")
    with et.Trainer(net, (X, Y)) as trainer:
        trainer.fit(epochs=1)
        best = bits(trainer)
    out = tmp_path / place if place else None
    with et.Trainer(net, (X, Y), out, callbacks=et.KeepBest(min_delta=9.0)) as trainer:
        trainer.resume(tmp_path / "run")
        trainer.fit(epochs=3)
        assert trainer.steps == 9 and bits(trainer) == best
    if out is not None:
        state = open_run(out, best=True).state
        assert state is not None and {n: state[n].tobytes() for n in best} == best


def test_a_best_state_of_another_program_is_refused(
    net: Program, path: Path, tmp_path: Path
) -> None:
    for name, program in (("run", net), ("other", compiled(path, seed=1))):
        kept(program, tmp_path / name)
    shutil.copy(tmp_path / "other" / BEST_FILE, tmp_path / "run")
    with pytest.raises(CheckpointError, match=f"{BEST_FILE}: .*another model"):
        open_run(tmp_path / "run", best=True)
    with (
        et.Trainer(net, (X, Y), tmp_path / "run", callbacks=et.KeepBest(min_delta=9.0)) as trainer,
        pytest.raises(CheckpointError, match=f"{BEST_FILE}: .*another model"),
    ):
        trainer.resume()
        trainer.fit(epochs=3)


def test_a_best_state_of_a_removed_run_is_removed(net: Program, tmp_path: Path) -> None:
    kept(net, tmp_path / "old")
    out = tmp_path / "new"
    out.mkdir()
    shutil.copy(tmp_path / "old" / BEST_FILE, out)
    with et.Trainer(net, (X, Y), out) as trainer:
        trainer.fit(epochs=1)
    assert not (out / BEST_FILE).exists()


@pytest.mark.parametrize("make", [et.KeepBest, et.EarlyStopping])
@pytest.mark.parametrize(
    ("other", "named"), [({"monitor": "train_loss"}, "'train_loss'"), ({"mode": "max"}, "'min'")]
)
def test_another_monitor_refuses_to_resume(net: Program, tmp_path: Path, make, other, named):
    with et.Trainer(net, (X, Y), tmp_path, callbacks=make("loss")) as trainer:
        trainer.fit(epochs=1)
    with (
        et.Trainer(
            net, (X, Y), tmp_path, callbacks=make(**{"monitor": "loss", **other})
        ) as trainer,
        pytest.raises(UsageError, match=f"{make.__name__}: .*{named}"),
    ):
        trainer.resume()


def test_losses_of_training_and_of_evaluations_are_not_compared() -> None:
    watch, trainer = et.KeepBest("loss"), type("Steps", (), {"steps": 1})()
    assert watch.better(trainer, {"loss": 2.0, "evaluation": {"loss": 0.5}})
    assert watch.better(trainer, {"loss": 1.0})
    assert not watch.better(trainer, {"loss": 1.5})


def test_inspect_shows_a_best_state(net: Program, tmp_path: Path, capsys) -> None:
    kept(net, tmp_path)
    assert main(["inspect", str(tmp_path / BEST_FILE)]) == 0
    assert "best state, from step 3, " in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / BEST_FILE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["meta"]["step"] == 3
