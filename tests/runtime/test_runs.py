"""What a run writes, who may write it, and how it ends without a result."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain.data.source import Source
from edgetrain.errors import Interrupted, RunError, UsageError
from edgetrain.program import Program
from edgetrain.runtime.run.checkpoint import latest, save_step, step_files
from edgetrain.runtime.run.folder import RunFolder
from edgetrain.runtime.run.lock import LOCK_FILE, RunLock, this_process
from tests.runtime.conftest import Compile, assert_same_bits, trained_state

BESIDE = ["history.json", "loss.svg"]  # files of a run besides its state


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def labelled(ignored: range, samples: int = 160) -> Source:
    """Random images with the digits' shape; those in `ignored` have no target that counts."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((samples, 1, 8, 8)).astype(np.float32)
    y = draw.integers(0, 10, samples)
    y[list(ignored)] = -100
    return et.open_data((x, y), test_fraction=0.25)


def events_of(program: Program, data: Any, steps: int, out: Path | None = None, **options):
    """A run's events, and what it ended with."""
    events: list[dict] = []
    trainer = et.Trainer(program, data, out, on_event=events.append, **options)
    try:
        trainer.fit(steps=steps)
        return events, None
    except (RunError, Interrupted) as error:
        return events, error
    finally:
        trainer.close()


@pytest.mark.parametrize("steps", [4, 60])
def test_a_run_whose_targets_are_all_ignored_says_so(
    forked_program: Program, tmp_path: Path, steps: int
) -> None:
    events, error = events_of(forked_program, labelled(range(160)), steps, tmp_path)
    assert isinstance(error, RunError) and "ignore_index -100" in str(error)
    assert "not finite" not in str(error) and error.exit_status == 1
    taken = [event for event in events if event["event"] == "step"]
    assert len(taken) == min(steps, 25)
    assert {event["reason"] for event in taken} == {"all targets ignored"}
    assert all(np.isnan(event["loss"]) and event["skipped"] for event in taken)


def test_a_step_without_targets_moves_nothing_and_leaves_the_loss_scale(
    forked: Compile,
) -> None:
    program = forked(precision="fp16")
    source = labelled(range(0), 32)
    trainer = et.Trainer(program, source)
    try:
        trainer.fit(steps=1)
        before = {n: a.copy() for n, a in trainer.session.state().items() if "mean" not in n}
        counters = trainer.session.counters()
        trainer.source.fill = lambda indices, buffers, **_: buffers["y"].fill(-100)
        trainer.fit(steps=1)
        after = trainer.session.state()
        statistics = {s.name for s in program.persistent if s.role == "buffer"}
        assert_same_bits(
            {n: after[n] for n in before if n not in statistics},
            {n: before[n] for n in before if n not in statistics},
        )
        assert trainer.session.counters() == counters | {"bad_steps": 1}
        assert trainer.session.counters()["updates"] == 1
    finally:
        trainer.close()


def test_the_epoch_s_loss_is_the_mean_of_steps_with_targets(forked_program: Program) -> None:
    source = labelled(range(0), 128)
    fill, calls = source.fill, iter(range(100))

    def without_targets(indices, buffers, **options) -> None:
        fill(indices, buffers, **options)
        if next(calls) // 2 % 2:  # every second minibatch of two microbatches
            buffers["y"].fill(-100)

    trainer = et.Trainer(forked_program, source)
    events: list[dict] = []
    trainer._record._listeners.append(events.append)
    trainer.source.fill = without_targets
    try:
        trainer.fit(epochs=1)
    finally:
        trainer.close()
    losses = [event["loss"] for event in events if event["event"] == "step"]
    assert np.isnan(losses).sum() == len(losses) // 2
    assert trainer.history["loss"] == [pytest.approx(np.nanmean(losses))]


def test_an_evaluation_without_targets_has_no_loss(forked_program: Program) -> None:
    trainer = et.Trainer(forked_program, "digits")
    try:
        found = trainer.evaluate(labelled(range(160)))
    finally:
        trainer.close()
    assert found["samples"] > 0 and np.isnan([found["loss"], found["accuracy"]]).all()


@pytest.mark.parametrize("lr", [float("nan"), float("inf"), -0.1, "0.1", 1e39, True])
def test_the_trainer_refuses_a_rate_that_is_none(forked_program: Program, lr: Any) -> None:
    with pytest.raises(UsageError, match="lr .*: expected a finite number .* 0"):
        et.Trainer(forked_program, "digits", lr=lr)


@pytest.mark.parametrize(
    ("fit", "words"),
    [({"epochs": float("nan")}, "epochs nan"), ({"epochs": -1}, "epochs -1"),
     ({"epochs": 0}, "epochs 0"), ({"steps": 0}, "steps 0"), ({"steps": 2.5}, "steps 2.5")],
)  # fmt: skip
def test_fit_refuses_lengths_that_are_none(forked_program: Program, fit: dict, words: str) -> None:
    trainer = et.Trainer(forked_program, "digits")
    try:
        with pytest.raises(UsageError, match=words):
            trainer.fit(**fit)
    finally:
        trainer.close()


def test_a_schedule_that_grows_beyond_what_is_finite_is_refused(forked_program: Program) -> None:
    schedule = et.Schedule("step", step_size=1, gamma=1e10)
    trainer = et.Trainer(forked_program, "digits", schedule=schedule)
    try:
        with pytest.raises(UsageError, match="gamma 1e.10 .* infinite"):
            trainer.fit(steps=400)
    finally:
        trainer.close()


# Checkpoints.


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_no_checkpoint_that_is_not_finite_is_written(tmp_path: Path, value, dtype) -> None:
    bad = np.zeros(9, dtype)
    bad[4] = value
    sound = {"w": np.zeros(3, np.float16), "n": np.arange(4)}
    for tensors, meta in (({**sound, "v": bad}, {}), (sound, {"scale": {"x": [1.0, value]}})):
        with pytest.raises(RunError, match="not finite"):
            save_step(tmp_path, 1, tensors, {**meta, "lr": 0.1}, save_total_limit=2)
    assert names(tmp_path) == []
    save_step(tmp_path, 1, {**sound, "v": bad}, {}, initial={"v": bad})  # a mask, not trained
    assert len(names(tmp_path)) == 1


def broken_at(step: int, slot: str, program: Program, out: Path, steps: int = 60) -> tuple:
    """A run with an infinity put into its state after a step."""

    def watch(event: dict) -> None:
        events.append(event)
        if event["event"] == "step" and event["step"] == step:
            trainer.session.values[slot].flat[0] = np.inf

    events: list[dict] = []
    trainer = et.Trainer(program, "digits", out, save_steps=2, on_event=watch)
    try:
        with pytest.raises(RunError) as caught:
            trainer.fit(steps=steps)
    finally:
        trainer.close()
    return events, str(caught.value)


@pytest.mark.parametrize("slot", ["head.w", "head.w.moment2", "block0.var"])
def test_a_state_that_is_not_finite_ends_the_run_and_is_not_saved(
    forked_program: Program, tmp_path: Path, slot: str
) -> None:
    _, message = broken_at(6, slot, forked_program, tmp_path)
    assert message == (
        f"step 6: {slot} is not finite. Lower the learning rate; the last good state is "
        f"{tmp_path}/step-00000004.ckpt."
    )
    assert names(tmp_path) == [
        "history.json",
        "loss.svg",
        "program.edge",
        "step-00000002.ckpt",
        "step-00000004.ckpt",
    ]


def test_a_broken_state_amid_skipped_steps_is_not_saved_and_older_ones_stay(
    forked_program: Program, tmp_path: Path
) -> None:
    events, message = broken_at(5, "head.w", forked_program, tmp_path)
    assert (
        "step 30: 25 steps in a row" in message
        and "gradients or statistics are not finite" in message
    )
    assert f"the last good state is {tmp_path}/step-00000004.ckpt; --resume {tmp_path}" in message
    warned = [event["message"] for event in events if event["event"] == "warning"]
    assert len(warned) == 13 and "step 6: not saved, because head.w is not finite" in warned[0]
    loaded = latest(tmp_path)
    assert loaded is not None and loaded.meta["step"] == 4


def test_rotation_keeps_the_checkpoint_from_before_bad_steps(
    forked_program: Program, tmp_path: Path
) -> None:
    def unlabelled_from_6(indices, buffers, **options) -> None:
        fill(indices, buffers, **options)
        if trainer.steps >= 6:
            buffers["y"].fill(-100)

    trainer = et.Trainer(forked_program, "digits", tmp_path, save_steps=3)
    fill, trainer.source.fill = trainer.source.fill, unlabelled_from_6
    try:
        with pytest.raises(RunError, match="last good state is .*step-00000006.ckpt"):
            trainer.fit(steps=60)
    finally:
        trainer.close()
    kept = ["step-00000003.ckpt", "step-00000006.ckpt", "step-00000030.ckpt", "step-00000031.ckpt"]
    assert [path.name for path in step_files(tmp_path)] == kept


def test_rotation_keeps_it_in_a_resumed_run_as_well(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    state = {"w": np.zeros(1)}
    for step in (2, 4):
        folder.save(step, state, {}, save_total_limit=2)
    again = RunFolder(tmp_path)
    again.resumed()
    for step in (6, 8, 10):
        again.save(step, state, {}, save_total_limit=2, bad_steps=step - 4)
    assert [path.name[5:13] for path in step_files(tmp_path)] == [
        "00000002",
        "00000004",
        "00000008",
        "00000010",
    ]
    again.save(12, state, {}, save_total_limit=2)
    assert [path.name[5:13] for path in step_files(tmp_path)] == ["00000010", "00000012"]


def test_nothing_is_said_of_a_last_state_where_there_is_none(forked_program: Program) -> None:
    _, error = events_of(forked_program, "digits", 60, lr=1e30)
    assert str(error).endswith("no state was saved.")


def test_a_model_that_is_not_finite_is_not_exported(digits: Program, tmp_path: Path) -> None:
    trainer = et.Trainer(digits, "digits")
    try:
        trainer.session.values["conv1.weight"].flat[0] = np.nan
        with pytest.raises(RunError, match="conv1.weight.* not finite"):
            trainer.export_onnx(tmp_path / "bad.onnx")
    finally:
        trainer.close()
    assert names(tmp_path) == []


# Who holds the directory.


def test_a_second_run_into_a_directory_is_refused(forked_program: Program, tmp_path: Path) -> None:
    def watch(event: dict) -> None:
        if event["event"] == "step" and event["step"] == 2:
            assert LOCK_FILE in names(tmp_path)
            for make in (et.Trainer, RunFolder.held):
                with pytest.raises(UsageError, match=f"process {os.getpid()} on .* is training in"):
                    if make is et.Trainer:
                        et.Trainer(forked_program, "digits", tmp_path)
                    else:
                        with RunFolder(tmp_path).held():
                            pass

    trainer = et.Trainer(forked_program, "digits", tmp_path, on_event=watch)
    try:
        trainer.fit(steps=3)
    finally:
        trainer.close()
    assert names(tmp_path) == [*BESIDE, "program.edge", "step-00000003.ckpt"]


def test_another_run_s_checkpoints_are_not_written_over(
    forked_program: Program, tmp_path: Path
) -> None:
    trained_state(forked_program, 3, out=tmp_path)
    trainer = et.Trainer(forked_program, "digits", tmp_path)
    try:
        trainer.fit(steps=2)
        assert trainer.out == tmp_path.with_name(f"{tmp_path.name}-2")
    finally:
        trainer.close()
    assert [path.name for path in step_files(tmp_path)] == ["step-00000003.ckpt"]
    with et.Trainer(forked_program, "digits", tmp_path, resume=True) as resumed:
        assert resumed.steps == 3 and resumed.out == tmp_path
        resumed.fit(steps=5)
    assert step_files(tmp_path)[-1].name == "step-00000005.ckpt"


_HOLD = """
import sys, time
from pathlib import Path
from edgetrain.runtime.run.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_the_lock_of_a_killed_process_is_taken_over(
    forked_program: Program, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLD, tmp_path], stdout=subprocess.PIPE) as held:
        assert held.stdout is not None and held.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=f"process {held.pid} "):
            RunLock(tmp_path)
        held.kill()
    assert names(tmp_path) == [LOCK_FILE]
    events, error = events_of(forked_program, "digits", 2, tmp_path)
    assert error is None
    warned = [event["message"] for event in events if event["event"] == "warning"]
    assert len(warned) == 1 and f"process {held.pid} on" in warned[0] and "lock" in warned[0]
    assert names(tmp_path) == [*BESIDE, "program.edge", "step-00000002.ckpt"]


@pytest.mark.parametrize(
    ("change", "refused"),
    [({"started": "1"}, False), ({"pid": 2**22 + 1}, False), ({"boot": "another"}, False),
     ({"boot": "another", "host": "elsewhere"}, True)],
)  # fmt: skip
def test_a_left_lock_is_judged_by_who_left_it(tmp_path: Path, change: dict, refused: bool) -> None:
    ours = this_process()
    left = ours._asdict() | change
    (tmp_path / LOCK_FILE).write_text(json.dumps(left))
    if refused:
        with pytest.raises(UsageError, match="on elsewhere .* remove"):
            RunLock(tmp_path)
        return
    lock = RunLock(tmp_path)
    assert lock.replaced is not None
    lock.release()
    lock.release()
    assert names(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": 1}', "\x00" * 100])
def test_a_lock_that_says_nothing_is_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / LOCK_FILE).write_text(text)
    RunLock(tmp_path).release()
    assert names(tmp_path) == []


# How a run is stopped.


@pytest.mark.parametrize(
    ("signum", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"),
     (signal.SIGHUP, 129, "hung up")],
)  # fmt: skip
def test_a_signal_finishes_the_minibatch_and_saves(
    forked_program: Program, tmp_path: Path, signum: int, status: int, word: str
) -> None:
    def at_step_3(event: dict) -> None:
        if event["event"] == "step" and event["step"] == 3:
            for _ in range(1 if signum == signal.SIGINT else 3):
                os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    trainer = et.Trainer(forked_program, "digits", tmp_path, on_event=at_step_3)
    with pytest.raises(Interrupted, match=f"{word} after step 3; .*step-00000003") as caught:
        trainer.fit(steps=8)
    trainer.close()
    assert caught.value.exit_status == status and signal.getsignal(signum) is before
    assert names(tmp_path) == [*BESIDE, "program.edge", "step-00000003.ckpt"]


def test_an_ignored_hang_up_stays_ignored(forked_program: Program) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _, error = events_of_hanging_up(forked_program)
        assert error is None and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def events_of_hanging_up(program: Program):
    trainer = et.Trainer(
        program, "digits", on_event=lambda event: os.kill(os.getpid(), signal.SIGHUP)
    )
    try:
        return trainer.fit(steps=3), None
    except Interrupted as error:
        return None, error
    finally:
        trainer.close()


_FORKED = """
import os, sys
import edgetrain as et
trainer = et.Trainer(et.load_program(sys.argv[1]), "digits", sys.argv[2])
trainer.fit(steps=2)
before = {n: a.copy() for n, a in trainer.session.state().items()}
child = os.fork()
if child == 0:
    said = 0
    state = {n: a * 0 for n, a in trainer.state_dict().items()}
    name = next(iter(trainer.parameters))
    for call in (lambda: trainer.fit(steps=4), trainer.evaluate, trainer.resume,
                 lambda: trainer.session.executor.run("eval"),
                 lambda: trainer.load_state_dict(state), lambda: setattr(trainer, "lr", 5.0),
                 lambda: trainer.parameters.update({name: state[name]}),
                 lambda: trainer.parameters.__setitem__(name, state[name]),
                 lambda: trainer.loss_weights.__setitem__("y", 2.0)):
        try:
            call()
        except et.UsageError as error:
            said += "was forked from process" in str(error)
    trainer.close()
    os._exit(10 + said)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 19
assert all((before[n] == a).all() for n, a in trainer.session.state().items())
trainer.fit(steps=3)
"""


def test_a_trainer_in_a_forked_child_says_so(forked_program: Program, tmp_path: Path) -> None:
    path = forked_program.save(tmp_path / "p.edge")
    # Python 3.12 and newer warn about forks in processes with threads, which this test needs.
    argv = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        _FORKED,
        path,
        tmp_path / "run",
    ]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
