"""Schedules in a run: an interruption changes nothing, and a plateau's memory is saved."""

from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.errors import CheckpointError
from edgetrain.optim import SCHEDULES, Schedule
from edgetrain.program import Program
from edgetrain.runtime.run.checkpoint import latest, save_checkpoint
from edgetrain.runtime.run.fields import check_run

from .conftest import assert_same_bits

STEPS = 12
OPTIONS = {
    "step": {"step_size": 5},
    "multistep": {"milestones": (3, 8)},
    "plateau": {"window": 2, "patience": 0, "threshold": 0.9, "gamma": 0.5},
}


def run(program: Program, schedule: Schedule, out: Path, stops: list[int]):
    """State and rates of a run that was resumed at each of `stops`."""
    rates: list[float] = []

    def note(event: dict) -> None:
        if event["event"] == "step":
            rates.append(event["lr"])
            if event["step"] in stops:
                trainer.interrupt()

    for _ in range(len(stops) + 1):
        trainer = et.Trainer(program, "digits", out, lr=0.05, schedule=schedule, on_event=note)
        trainer.resume()
        try:
            trainer.fit(steps=STEPS)
        except et.RunError:
            raise
        except BaseException as stopped:
            assert type(stopped).__name__ == "Interrupted"
        state = {name: array.copy() for name, array in trainer.session.state().items()}
        trainer.close()
    return state, rates


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_that_is_interrupted_has_the_same_bits_and_rates(
    forked_program: Program, tmp_path: Path, name: str
) -> None:
    schedule = Schedule(name, **OPTIONS.get(name, {}))
    whole, rates = run(forked_program, schedule, tmp_path / "whole", [])
    parts, again = run(forked_program, schedule, tmp_path / "parts", [3, 8])
    assert_same_bits(whole, parts)
    assert rates == again and len(rates) == STEPS
    if name == "plateau":
        assert rates[-1] < rates[0] / 4


def test_a_plateau_of_an_earlier_version_keeps_its_rule(
    forked_program: Program, tmp_path: Path
) -> None:
    """Its checkpoint does not say whether losses of skipped steps count: then they did."""
    schedule = Schedule("plateau", **OPTIONS["plateau"])
    run(forked_program, schedule, tmp_path, [])
    loaded = latest(tmp_path)
    assert loaded is not None and loaded.meta["schedule"].pop("skipped") is False
    save_checkpoint(loaded.used, loaded.tensors, loaded.meta)
    trainer = et.Trainer(forked_program, "digits", tmp_path, lr=0.05, schedule=schedule)
    assert trainer.resume()
    assert [call.kernel for call in trainer.schedule.calls()] == ["rate_plateau_all"]
    trainer.close()
    assert [call.kernel for call in schedule.calls()] == ["rate_plateau"]


def test_what_a_plateau_has_seen_is_checked(forked_program: Program, tmp_path: Path) -> None:
    run(forked_program, Schedule("plateau", **OPTIONS["plateau"]), tmp_path, [])
    loaded = latest(tmp_path)
    assert loaded is not None and check_run(loaded).meta["seen"]["drops"] > 0
    assert np.isfinite(loaded.meta["seen"]["last_loss"])
    for seen in ({}, {**loaded.meta["seen"], "more": 1.0}, {**loaded.meta["seen"], "sum": "x"}):
        with pytest.raises(CheckpointError, match="seen"):
            check_run(loaded._replace(meta={**loaded.meta, "seen": seen}))
