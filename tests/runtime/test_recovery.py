"""A run that diverged continues from its last good state, with other rates."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.errors import CheckpointError, RunError, UsageError
from edgetrain.program import Program
from edgetrain.runtime.run.checkpoint import latest, step_files
from tests.runtime.conftest import Compile, assert_same_bits

ROOT = Path(__file__).resolve().parents[2]


def diverged(program: Program, out: Path, at: int, **settings: object) -> list[dict]:
    """A run whose learning rate is far too high from step `at`."""
    events: list[dict] = []

    def raise_rate(trainer: et.Trainer, result: et.StepResult) -> None:
        if trainer.steps == at:
            trainer.lr = 1e30

    hook = et.Callback(on_step=raise_rate)
    with (
        et.Trainer(
            program, "digits", out, callbacks=hook, on_event=events.append, **settings
        ) as trainer,
        pytest.raises(RunError, match="25 steps in a row") as caught,
    ):
        trainer.fit(steps=60)
    events.append({"event": "error", "message": str(caught.value)})
    return events


@pytest.mark.parametrize(
    ("at", "save_steps", "good"), [(7, 3, 6), (6, 3, 6), (7, 1, 7), (0, 1, 0), (2, 50, 0)]
)
def test_a_run_goes_on_from_the_state_before_it_diverged(
    forked: Compile, tmp_path: Path, at: int, save_steps: int, good: int
) -> None:
    program, out = forked(), tmp_path / "run"
    if at == 0:
        program = forked(optimizer=et.SGD(lr=1e30))
    said = diverged(program, out, at, save_steps=save_steps)[-1]["message"]
    assert f"--resume {out} --lr R" in said
    assert f"step-{good:08d}.ckpt" in said if good else "no earlier state was saved" in said
    with pytest.raises(CheckpointError, match=f"diverged: 25 steps .*--resume {out} --lr R"):
        et.Trainer(program, "digits", out, callbacks=et.Callback(), resume=True)
    notes: list[dict] = []
    with et.Trainer(
        program, "digits", out, callbacks=et.Callback(), resume=True, lr=0.01,
        on_event=notes.append,
    ) as trainer:  # fmt: skip
        assert (trainer.steps, trainer.lr) == (good, 0.01)
        history = trainer.fit(steps=good + 20)
        assert trainer.steps == good + 20 and np.isfinite(history["loss"]).all()
        assert trainer.history.last == good + 20
    assert any("lr 0.01 (was" in event.get("message", "") for event in notes)
    loaded = latest(out)
    assert loaded is not None and loaded.meta["step"] == good + 20 and "diverged" not in loaded.meta
    assert all(int(file.stem[5:]) <= good + 20 for file in step_files(out))


def test_messages_of_a_diverged_run_do_not_contradict_each_other(
    forked: Compile, tmp_path: Path
) -> None:
    events = diverged(forked(), tmp_path / "run", 2, save_steps=50)
    words = [event["message"] for event in events if "message" in event]
    assert not any("state saved in" in text for text in words)
    assert sum("saved" in text for text in words) == 1


def test_a_run_goes_on_with_other_clipping_and_loss_scale(forked: Compile, tmp_path: Path) -> None:
    """Equal to a Program that clips from the start, continued from the same state."""
    program, clips = forked(), forked(max_grad_norm=0.01)
    with et.Trainer(program, "digits", tmp_path / "a") as trainer:
        trainer.fit(steps=3)
    settings: dict = {"max_grad_norm": 0.01, "loss_scale": 8.0}
    with et.Trainer(program, "digits", tmp_path / "a", resume=True, **settings) as trainer:
        trainer.fit(steps=6)
        assert (trainer.session.max_grad_norm, trainer.session.loss_scale) == (0.01, 8.0)
        found = {name: array.copy() for name, array in trainer.session.state().items()}
    with et.Trainer(program, "digits", tmp_path / "a", resume=True) as trainer:  # it is kept
        assert (trainer.session.max_grad_norm, trainer.session.loss_scale) == (0.01, 8.0)
    with et.Trainer(program, "digits") as first, et.Trainer(clips, "digits") as other:
        first.fit(steps=3)
        for name, array in other.session.state().items():
            array[...] = first.session.state()[name]
        other.session.set_counters(3, first.session.counters())
        other.session.set_loss_scale(8.0)
        other.fit(steps=6)
        assert_same_bits(other.session.state(), found)


def test_a_run_may_be_resumed_with_the_loss_scale_of_its_program_again(
    forked: Compile, tmp_path: Path
) -> None:
    program = forked(loss_scale=1024.0, effort="quick")
    for steps, asked, expected in ((1, 64.0, 64.0), (2, None, 64.0), (3, 1024.0, 1024.0)):
        with et.Trainer(
            program, "digits", tmp_path, resume=steps > 1, loss_scale=asked, verbose=False
        ) as trainer:
            trainer.fit(steps=steps)
            assert trainer.session.loss_scale == expected


def test_clipping_is_refused_where_gradients_are_never_together(
    forked: Compile, tmp_path: Path
) -> None:
    fused = forked(fused_update=True, microbatch=16)
    with pytest.raises(UsageError, match="max_grad_norm: .*fused_update"):
        et.Trainer(fused, "digits", tmp_path, max_grad_norm=1.0)


def test_the_recipe_of_the_docs_brings_a_run_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    (commands,) = re.findall(r"```console\n(.*?1e30.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = [line.removeprefix("$ edgetrain ") for line in commands.splitlines()]
    status = [main(shlex.split(line, comments=True)) for line in lines]
    said = capsys.readouterr()
    assert status == [1, 0] and "--resume runs/b --lr R" in said.err
    assert "trained 88 steps" in said.out
