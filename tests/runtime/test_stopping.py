"""Failing steps, and Ctrl-C (contracts 5 and 7)."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.data.source import Source
from edgetrain.errors import CheckpointError, Interrupted, RunError
from edgetrain.program import Program
from edgetrain.runtime.run.checkpoint import step_files
from tests.runtime.conftest import Compile, assert_same_bits, trained_state


def poisoned(bad: int) -> Source:
    """64 samples with the digits' shape, one of them infinite."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((64, 1, 8, 8)).astype(np.float32)
    x[bad] = np.inf
    return et.open_data((x, draw.integers(0, 10, 64)), test_fraction=0.25, allow_nonfinite=True)


def test_a_step_that_is_not_finite_moves_everything_but_the_weights(
    forked_program: Program,
) -> None:
    roles = {s.name: s.role for s in forked_program.persistent}
    events: list[dict] = []
    before: dict[str, np.ndarray] = {}

    def weights() -> dict[str, np.ndarray]:
        state = trainer.session.state()
        return {name: state[name].copy() for name in state if roles[name] != "buffer"}

    def watch(event: dict) -> None:
        if event["event"] == "step":
            events.append(event)
            if event["skipped"]:
                assert_same_bits(weights(), before)
            before.update(weights())

    trainer = et.Trainer(forked_program, poisoned(7), on_event=watch)
    try:
        before.update(weights())
        trainer.fit(epochs=1)
        skipped = [event["skipped"] for event in events]
        assert (len(skipped), sum(skipped), trainer.steps) == (3, 1, 3)
        assert trainer.session.counters()["updates"] == 2
    finally:
        trainer.close()


def test_many_bad_steps_stop_the_run_with_the_last_good_state_on_disk(
    forked: Compile, tmp_path: Path
) -> None:
    program = forked(optimizer=et.SGD(lr=1e30))
    trainer = et.Trainer(program, "digits", tmp_path, save_steps=1)
    try:
        with pytest.raises(RunError, match="not finite"):
            trainer.fit(epochs=2)
    finally:
        trainer.close()
    state = et.load_program(tmp_path / "program.edge")
    assert state.arena_nbytes == program.arena_nbytes
    assert step_files(tmp_path)


def test_one_interrupt_finishes_the_minibatch_and_the_run_goes_on_from_there(
    forked_program: Program, tmp_path: Path
) -> None:
    expected = trained_state(forked_program, 8)

    def at_step_5(event: dict) -> None:
        if event["event"] == "step" and event["step"] == 5:
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    trainer = et.Trainer(forked_program, "digits", tmp_path, on_event=at_step_5)
    with pytest.raises(Interrupted, match="after step 5"):
        trainer.fit(steps=8)
    trainer.close()
    assert signal.getsignal(signal.SIGINT) is handler
    assert [path.name for path in step_files(tmp_path)] == ["step-00000005.ckpt"]
    assert_same_bits(trained_state(forked_program, 8, out=tmp_path), expected)


def test_two_interrupts_discard_the_minibatch(forked_program: Program, tmp_path: Path) -> None:
    expected = trained_state(forked_program, 8)
    trainer = et.Trainer(forked_program, "digits", tmp_path, save_steps=1)
    fill, calls = trainer.source.fill, 0

    def interrupting(*args, **kwargs) -> None:
        nonlocal calls
        calls += 1
        if calls == 7:  # the first microbatch of step 4
            trainer.interrupt()
            trainer.interrupt()
        fill(*args, **kwargs)

    trainer.source.fill = interrupting
    with pytest.raises(Interrupted, match="discarded"):
        trainer.fit(steps=8)
    assert trainer.steps == 3
    for slot in forked_program.persistent:
        if slot.role == "accumulator":
            assert not trainer.session.values[slot.name].any(), slot.name
    trainer.resume()
    trainer.fit(steps=8)  # in the same process
    assert_same_bits(trainer.session.state(), expected)
    trainer.close()
    assert_same_bits(trained_state(forked_program, 8, out=tmp_path), expected)


def test_an_interrupt_ends_an_evaluation(forked_program: Program, tmp_path: Path) -> None:
    def at_epoch(event: dict) -> None:
        if event["event"] == "epoch":
            trainer.interrupt()

    trainer = et.Trainer(forked_program, "digits", tmp_path, on_event=at_epoch)
    with pytest.raises(Interrupted):
        trainer.fit(epochs=2, evaluate=True)
    trainer.close()
    assert [path.name for path in step_files(tmp_path)] == ["step-00000089.ckpt"]


def test_resume_refuses_another_run(
    forked: Compile, forked_program: Program, tmp_path: Path
) -> None:
    cosine = et.Schedule("cosine")
    trained = et.Trainer(forked_program, "digits", tmp_path, schedule=cosine)
    trained.fit(steps=2)
    trained.close()

    def refused(program: Program, data: object = "digits", steps: int = 2, **options) -> None:
        trainer = et.Trainer(program, data, **options)
        try:
            with pytest.raises(CheckpointError):
                trainer.resume(tmp_path)
                trainer.fit(steps=steps)
        finally:
            trainer.close()

    refused(forked(optimizer=et.Adam(lr=0.02)))
    refused(forked(precision="fp16"))
    refused(forked(seed=1))
    refused(forked(microbatch=16))
    refused(forked_program, poisoned(3))
    refused(forked_program, schedule=et.Schedule())
    refused(forked_program, steps=5)
