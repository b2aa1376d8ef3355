"""Recomputation, layout, threads and interruption change no bit (contracts 2 and 7)."""

import time
from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler import plan_model
from edgetrain.kernels.cache.workers import processors
from edgetrain.kernels.step_loop.team import (
    ALONE,
    CHOSEN,
    CYCLE,
    MISSED,
    MOST_MISSED,
    RUNS,
    TAPES,
    TOGETHER,
    TRIES,
)
from edgetrain.kernels.tapes import tape
from edgetrain.program import Program
from edgetrain.runtime import team
from tests.quick import slow_except
from tests.runtime.conftest import Compile, assert_same_bits, trained_state

STEPS = 20


STORED = {
    "fp32": {},
    "fp16": {"precision": "fp16"},
    "int8": {"model_memory": "int8"},
    "saved": {"saved": "int8"},
    "fp16, int8": {"precision": "fp16", "model_memory": "int8", "density": 0.5},
}
# Adds options that leave too few plans of this net to compare.
WITHIN = STORED | {"fp16, saved": {**STORED["fp16, int8"], "saved": "int8"}}


@pytest.mark.parametrize("stored", slow_except(STORED, "fp32", "fp16, int8"))
def test_training_is_the_same_for_every_plan(forked: Compile, tmp_path: Path, stored: str) -> None:
    from tests.runtime.models import write_forked

    model = et.load_onnx(write_forked(tmp_path / "forked.onnx"))
    options = make_options(minibatch=16, microbatch=8, optimizer=et.Adam(lr=0.01), **STORED[stored])
    front = plan_model(model, options)[1]
    chosen = [front[0], front[len(front) // 2], front[-1]]
    extras = {plan.extra_forward for plan in chosen}
    assert len(extras) == 3 and 0.0 in extras and max(extras) > 0.3
    states = [trained_state(forked(plan.arena_nbytes, **STORED[stored]), STEPS) for plan in chosen]
    for state in states[1:]:
        assert_same_bits(state, states[0])


@pytest.mark.parametrize(
    "stored",
    slow_except(["fp32", "int8", "saved", "fp16, int8", "fp16, saved"], "fp16, saved"),
)
def test_training_is_the_same_for_1_2_3_and_7_threads(forked: Compile, stored: str) -> None:
    expected = trained_state(forked(**WITHIN[stored]), STEPS)
    seven = forked(threads=7, **WITHIN[stored])
    for threads in (1, 2, 3, 7):
        assert_same_bits(trained_state(seven, STEPS, threads=threads), expected)


@pytest.mark.parametrize("count", slow_except([2, 5], 5))
def test_workers_that_wait_for_locks_give_the_same_bits(
    forked: Compile, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    program = forked(threads=count)
    expected = trained_state(program, STEPS)
    monkeypatch.setattr(team, "_FUTEX", {})
    with et.Trainer(program) as trainer:
        assert isinstance(trainer.session.executor.team, team.Relay)
    assert_same_bits(trained_state(program, STEPS), expected)


@pytest.mark.parametrize("alone", [0, 10**7])
def test_small_tapes_wake_no_worker(
    forked_program: Program, monkeypatch: pytest.MonkeyPatch, alone: int
) -> None:
    monkeypatch.setattr("edgetrain.program.program.ALONE", alone)
    with et.Trainer(forked_program) as trainer:
        executor = trainer.session.executor
        if not isinstance(executor.team, team.Sleepers):
            pytest.skip("no 64-bit Linux: workers wait for locks")
        for _ in range(3):
            executor.run("eval")
            time.sleep(0.005)  # workers sleep by now
        assert executor.team.barrier[tape.JOB] == (0 if alone else 3)


def test_a_short_tape_is_run_alone_and_with_workers_that_answer_to_the_same_bits(
    forked: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, steps = forked(threads=2), 30
    expected = trained_state(program, steps, threads=1)
    monkeypatch.setattr("edgetrain.program.program.ALONE", 10**12)
    monkeypatch.setattr("edgetrain.program.program.BRIEF", 0)
    assert_same_bits(trained_state(program, steps), expected)
    with et.Trainer(program) as trainer:
        executor = trainer.session.executor
        if not isinstance(executor.team, team.Sleepers):
            pytest.skip("no 64-bit Linux: workers wait for locks")
        if processors() < 2:
            pytest.skip("one processor: a worker answers when the caller gives way")
        block, runs, end = executor.team.barrier, 0, time.monotonic() + 60
        while block[tape.BEGUN] == 0 and time.monotonic() < end:
            executor.run("eval")
            runs += 1
        # each cycle times some runs alone; a worker that sleeps or waits is not waited for
        assert runs > TRIES and 0 < block[tape.BEGUN] <= block[tape.JOB] <= runs - TRIES
        block[[tape.JOB, tape.DECIDED]] = 2**31 - 3  # a few before the numbers wrap around
        while block[tape.JOB] < 2**31 + 3 and time.monotonic() < end:
            executor.run("eval")
        assert block[tape.JOB] >= 2**31 + 3


def test_short_tapes_are_all_run_the_way_that_was_faster_of_their_sum(
    forked: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgetrain.program.program.ALONE", 10**12)
    monkeypatch.setattr("edgetrain.program.program.BRIEF", 0)
    with et.Trainer(forked(threads=2)) as trainer:
        executor = trainer.session.executor
        if not isinstance(executor.team, team.Sleepers):
            pytest.skip("no 64-bit Linux: workers wait for locks")
        memo, end = executor.memo, time.monotonic() + 60
        while not 2 * TRIES < memo[RUNS] < CYCLE - 4 and time.monotonic() < end:
            for tape_name in ("micro", "eval"):
                executor.run(tape_name)
        found = memo[tape.MEMO_WORDS :].reshape(-1, tape.TIMES)
        both = found[(found < 2**62).all(axis=1)]
        assert len(found) == memo[TAPES]
        if memo[MISSED] < MOST_MISSED:
            assert len(both) == 2
            alone, together = both[:, ALONE], both[:, TOGETHER]
            assert memo[CHOSEN] == ((alone - alone // 8 - together).sum() > 0)
        block, begun = executor.team.barrier, int(executor.team.barrier[tape.BEGUN])
        for tape_name in ("micro", "eval"):
            executor.run(tape_name)
        assert memo[CHOSEN] or block[tape.BEGUN] == begun


@pytest.mark.parametrize("stored", ["fp32", "int8", "saved"])
def test_a_resumed_run_ends_with_the_same_bits(
    forked: Compile, tmp_path: Path, stored: str
) -> None:
    program = forked(**WITHIN[stored])
    expected = trained_state(program, STEPS)
    for steps in (3, 11, STEPS):
        state = trained_state(program, steps, out=tmp_path)
    assert_same_bits(state, expected)


def test_another_seed_gives_other_bits(forked: Compile, forked_program: Program) -> None:
    one, other = trained_state(forked_program, 2), trained_state(forked(seed=1), 2)
    assert one["head.w"].tobytes() != other["head.w"].tobytes()
