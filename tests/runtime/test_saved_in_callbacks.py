"""Checkpoints written within callbacks: a resumed run has the bits of the undisturbed one."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import edgetrain as et
from edgetrain.errors import UsageError
from edgetrain.program import Program
from tests.runtime.online_net import compiled, drawn, exported

X, Y = drawn(64)
KILLED = 9  # after this step the run's directory is copied


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return compiled(exported(tmp_path_factory.mktemp("saved"))[1])


def _saved(trainer: Any) -> None:
    trainer.lr *= 0.5
    trainer.save()


class Epochs(et.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any) -> None:
        _saved(self.model)


class Batches(et.Callback):
    def on_train_batch_begin(self, batch: int, logs: Any) -> None:
        _saved(self.model)


class Saves(et.Callback):
    def on_step(self, trainer: Any, result: Any) -> None:
        if trainer.steps == KILLED - 1:
            trainer.save()


class Decays(et.Callback):
    def on_step(self, trainer: Any, result: Any) -> None:
        trainer.lr *= 0.9


CASES: dict[str, Any] = {
    "epoch end": lambda: [et.Callback(on_epoch_end=lambda trainer, event: _saved(trainer))],
    "early stopping": lambda: [
        et.EarlyStopping("train_loss", patience=3, min_delta=9.0),
        et.Callback(on_epoch_end=lambda trainer, event: _saved(trainer)),
    ],
    "evaluation": lambda: [et.Callback(on_evaluate=lambda trainer, metrics: _saved(trainer))],
    "epoch begin": lambda: [Epochs()],
    "batch begin": lambda: [Batches()],
    "step, before another's": lambda: [Saves(), Decays()],
    "step, after another's": lambda: [Decays(), Saves()],
    "save": lambda: [Saves(), et.Callback(on_save=lambda trainer, path: _halve(trainer))],
}


def _halve(trainer: Any) -> None:
    trainer.lr *= 0.5


def _trained(net: Program, callbacks: list[Any], out: Path, copy: Path | None = None) -> Any:
    def listen(event: dict[str, Any]) -> None:
        if copy is not None and event["event"] == "step" and event["step"] == KILLED:
            shutil.copytree(out, copy)

    settings = {"validation": 0.25, "save_steps": 1000, "on_event": listen, "resume": copy is None}
    with et.Trainer(net, (X, Y), out, callbacks=callbacks, **settings) as trainer:
        begun = trainer.steps
        trainer.fit(epochs=5)
        bits = {name: value.tobytes() for name, value in trainer.parameters.items()}
        return begun, (trainer.steps, trainer.lr, bits)


@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_after_a_save_in_a_callback_resumes_as_if_it_was_not(
    case: str, net: Program, tmp_path: Path
) -> None:
    _, expected = _trained(net, CASES[case](), tmp_path / "whole", tmp_path / "killed")
    begun, found = _trained(net, CASES[case](), tmp_path / "killed")
    assert 0 < begun <= KILLED and found == expected


def test_two_callbacks_that_keep_different_best_epochs_are_refused(net: Program) -> None:
    stopping = et.EarlyStopping("train_loss", restore_best_weights=True)
    with pytest.raises(UsageError, match=r"EarlyStopping\('train_loss'\) and KeepBest\('loss'\)"):
        et.Trainer(net, (X, Y), callbacks=[stopping, et.KeepBest("loss")])
    same = et.EarlyStopping("loss", restore_best_weights=True)
    et.Trainer(net, (X, Y), callbacks=[same, et.KeepBest("loss")]).close()
    et.Trainer(net, (X, Y), callbacks=[et.EarlyStopping("train_loss"), et.KeepBest("loss")]).close()


def _twice(net: Program, out: Path, killed: Path | None = None) -> Any:
    """Two `fit` calls; the best epoch is the first, so each call restores its weights."""

    def copied(trainer: Any, result: Any) -> None:
        if killed is not None and trainer.steps == 3 * trainer.steps_per_epoch + 1:
            shutil.copytree(out, killed)

    callbacks = [et.KeepBest("train_loss", mode="max"), et.Callback(on_step=copied)]
    with et.Trainer(net, (X, Y), out, callbacks=callbacks, save_steps=1, resume=True) as trainer:
        trainer.fit(epochs=2)
        trainer.fit(epochs=3)
        bits = {name: value.tobytes() for name, value in trainer.parameters.items()}
        return trainer.history["loss"], bits


def test_a_call_of_fit_that_an_earlier_process_finished_changes_no_weights(net, tmp_path):
    expected = _twice(net, tmp_path / "whole", tmp_path / "killed")
    assert _twice(net, tmp_path / "killed") == expected


def test_a_killed_run_keeps_the_history_of_its_finished_epochs(net: Program, tmp_path: Path):
    def copied(trainer: Any, result: Any) -> None:
        if trainer.steps == 3 * trainer.steps_per_epoch + 1 and not (tmp_path / "b").exists():
            shutil.copytree(tmp_path / "a", tmp_path / "b")

    found = []
    for out in ("a", "b"):
        options = {"validation": 0.25, "save_steps": 1, "callbacks": [et.Callback(on_step=copied)]}
        with et.Trainer(net, (X, Y), tmp_path / out, resume=out == "b", **options) as trainer:
            found.append(trainer.fit(5))
    assert found[0]["loss"] == found[1]["loss"] and len(found[0]["loss"]) == 5
    assert found[0]["val_loss"] == found[1]["val_loss"]
