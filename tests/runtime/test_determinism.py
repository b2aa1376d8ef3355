"""Recomputation, layout, threads and interruption change no bit (contracts 2 and 7)."""

from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler import plan_model
from edgetrain.program import Program
from tests.runtime.conftest import Compile, assert_same_bits, trained_state

STEPS = 20


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_training_is_the_same_for_every_plan(
    forked: Compile, tmp_path: Path, precision: str
) -> None:
    from tests.runtime.models import write_forked

    model = et.load_onnx(write_forked(tmp_path / "forked.onnx"))
    options = make_options(
        minibatch=16, microbatch=8, optimizer=et.Adam(lr=0.01), precision=precision
    )
    front = plan_model(model, options)[1]
    chosen = [front[0], front[len(front) // 2], front[-1]]
    extras = {plan.extra_forward for plan in chosen}
    assert len(extras) == 3 and 0.0 in extras and max(extras) > 0.3
    states = [
        trained_state(forked(plan.arena_nbytes, precision=precision), STEPS) for plan in chosen
    ]
    for state in states[1:]:
        assert_same_bits(state, states[0])


def test_training_is_the_same_for_1_2_3_and_7_threads(
    forked: Compile, forked_program: Program
) -> None:
    expected = trained_state(forked_program, STEPS)
    seven = forked(threads=7)
    for threads in (1, 2, 3, 7):
        assert_same_bits(trained_state(seven, STEPS, threads=threads), expected)


def test_a_resumed_run_ends_with_the_same_bits(forked_program: Program, tmp_path: Path) -> None:
    expected = trained_state(forked_program, STEPS)
    for steps in (3, 11, STEPS):
        state = trained_state(forked_program, steps, out=tmp_path)
    assert_same_bits(state, expected)


def test_another_seed_gives_other_bits(forked: Compile, forked_program: Program) -> None:
    one, other = trained_state(forked_program, 2), trained_state(forked(seed=1), 2)
    assert one["head.w"].tobytes() != other["head.w"].tobytes()
