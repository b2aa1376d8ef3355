"""A run killed just before an epoch's end loses neither the evaluation nor calls of callbacks."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import edgetrain as et
from edgetrain.program import Program
from edgetrain.runtime.run.checkpoint import latest
from edgetrain.runtime.training.monitors import EarlyStopping
from tests.quick import slow_except

SAVES: dict[str, dict[str, Any]] = {
    "by steps": {"save_steps": 1},
    "by seconds": {"save_seconds": 1e-9},
}


def trained(
    program: Program, out: Path, saves: dict, steps: int, killed: int = 0, patience: int = 50
) -> list[dict]:
    """Continue a run in `out` and return its events.

    With `killed`, a kill at the end of that epoch (1: the first) is simulated: `out` is replaced
    by its state at that moment.
    """
    events: list[dict] = []

    def note(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "epoch" and event["epoch"] == killed:
            shutil.copytree(out, out.with_name("left"), ignore=shutil.ignore_patterns("run.lock"))

    watched = [EarlyStopping("loss", patience=patience, min_delta=9.0)]
    trainer = et.Trainer(
        program, "digits", out, validation=0.2, on_event=note, callbacks=watched, **saves
    )
    trainer.resume()
    trainer.fit(steps=steps, evaluate=True)
    trainer.close()
    if killed:
        shutil.rmtree(out)
        out.with_name("left").rename(out)
    return events


@pytest.mark.parametrize("name", slow_except(SAVES, "by steps"))
@pytest.mark.parametrize("killed", slow_except([1, 2], 2), ids=["a pass", "the run"])
def test_an_epoch_that_was_killed_at_its_end_is_told_by_the_run_that_goes_on(
    forked_program: Program, tmp_path: Path, name: str, killed: int
) -> None:
    steps = 100  # 71 are an epoch
    saves, whole, parts = SAVES[name], tmp_path / "whole", tmp_path / "parts"
    told = [e for e in trained(forked_program, whole, saves, steps) if e["event"] == "eval"]
    trained(forked_program, parts, saves, steps, killed)
    again = trained(forked_program, parts, saves, steps)
    assert [e for e in again if e["event"] == "eval"] == told[killed - 1 :]
    first, second = latest(whole), latest(parts)
    assert first is not None and second is not None
    assert first.meta == second.meta
    assert first.meta["position"]["ended"] is False and first.meta["step"] == steps


def test_a_run_that_has_ended_tells_nothing_again(forked_program: Program, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained(forked_program, out, {"save_steps": 50}, 100)
    before = {path.name: path.read_bytes() for path in out.glob("*.ckpt")}
    again = trained(forked_program, out, {"save_steps": 50}, 100)
    assert not {"epoch", "eval"} & {event["event"] for event in again}
    assert {path.name: path.read_bytes() for path in out.glob("*.ckpt")}.keys() == before.keys()


@pytest.mark.parametrize("name", slow_except(SAVES, "by steps"))
def test_a_run_that_stopped_early_has_ended(
    forked_program: Program, tmp_path: Path, name: str
) -> None:
    """No epoch improves by 9, so the second one ends the run."""
    out = tmp_path / "run"
    for _ in range(2):
        events = trained(forked_program, out, SAVES[name], 400, patience=1)
        loaded = latest(out)
        assert loaded is not None and loaded.meta["step"] == 142
        assert [event["step"] for event in events if event["event"] == "stop"] == [142]
    assert not {"epoch", "eval"} & {event["event"] for event in events}
