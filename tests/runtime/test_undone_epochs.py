"""Epochs that ended with an exception: the next `fit` has no callback count them twice."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain import callbacks
from edgetrain.program import Program
from tests.runtime.online_net import compiled, drawn, exported

X, Y = drawn(48)
TEST = drawn(16, 1)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return compiled(exported(tmp_path_factory.mktemp("undone"))[1])


class Fails(et.Callback):
    """Fails once, at the end of an epoch."""

    def __init__(self, epoch: int = 2) -> None:
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, trainer: et.Trainer, event: Any) -> None:
        if event["epoch"] == self.epoch:
            self.epoch = 0
            raise ZeroDivisionError


def fit_twice(net: Program, given: list[Any], epochs: int) -> et.Trainer:
    with et.Trainer(net, (X, Y), callbacks=[*given, Fails()]) as trainer:
        with pytest.raises(ZeroDivisionError):
            trainer.fit(epochs=epochs)
        trainer.fit(epochs=epochs)
    return trainer


def test_early_stopping_counts_an_epoch_once_if_a_later_callback_failed(net) -> None:
    stopping = et.EarlyStopping(patience=3, min_delta=9.0)
    assert fit_twice(net, [stopping], 9).steps == 3 * 4
    assert stopping.waited == 3


def test_csv_logger_has_one_row_for_an_epoch_if_a_later_callback_failed(net, tmp_path) -> None:
    fit_twice(net, [callbacks.CSVLogger(tmp_path / "a.csv")], 3)
    rows = csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]


def test_a_rate_is_set_once_for_an_epoch_whose_first_batch_failed(net) -> None:
    passes = 0

    def batches():
        nonlocal passes
        passes += 1
        if passes == 2:
            raise OSError("no network")
        for k in (0, 16, 32):
            yield X[k : k + 16], Y[k : k + 16]

    halves = callbacks.LearningRateScheduler(lambda epoch, lr: lr / 2)
    with et.Trainer(net, batches, lr=0.8, callbacks=halves) as trainer:
        with pytest.raises(OSError, match="no network"):
            trainer.fit(epochs=3)
        trainer.fit(epochs=3)
        assert (trainer.steps, trainer.lr, passes) == (9, pytest.approx(0.1), 4)


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("settings", [{}, {"validation": TEST}], ids=["plain", "evaluated"])
def test_history_has_the_epoch_whose_last_step_was_interrupted(
    net, tmp_path: Path, resumes: bool, settings: dict[str, Any]
) -> None:
    with et.Trainer(net, (X, Y), **settings) as trainer:
        whole = trainer.fit(epochs=3)
    ends = et.Callback(on_step=lambda trainer, result: trainer.steps == 6 and trainer.interrupt())
    settings = {"callbacks": ends, "out": tmp_path / "run", **settings}
    trainer = et.Trainer(net, (X, Y), **settings)
    with pytest.raises(et.errors.Interrupted):
        trainer.fit(epochs=3)
    if resumes:
        trainer.close()
        trainer = et.Trainer(net, (X, Y), resume=True, **settings)
    trainer.fit(epochs=3)
    with trainer:
        for name in whole:
            if name != "seconds":
                np.testing.assert_array_equal(trainer.history[name], whole[name])


def test_logs_have_the_scheduled_rate_if_the_run_resumes_at_the_end_of_an_epoch(
    net, tmp_path: Path
) -> None:
    def run(name: str, stop_at: int) -> None:
        given = [
            callbacks.CSVLogger(tmp_path / f"{name}.csv"),
            et.Callback(
                on_step=lambda trainer, _: trainer.steps == stop_at and trainer.interrupt()
            ),
        ]
        with et.Trainer(
            net, (X, Y), tmp_path / name, callbacks=given, schedule=et.Schedule("cosine")
        ) as trainer:
            trainer.resume()
            trainer.fit(epochs=4)

    run("whole", 0)
    with pytest.raises(et.errors.Interrupted):
        run("parts", 6)
    run("parts", 0)
    assert (tmp_path / "parts.csv").read_text() == (tmp_path / "whole.csv").read_text()
