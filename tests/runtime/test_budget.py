"""The arena has the planned bytes, and nothing outside it is touched (contract 1)."""

import subprocess
import sys

import numpy as np
import pytest

import edgetrain as et
from edgetrain.errors import BudgetError, ProgramError
from edgetrain.program import Program
from edgetrain.runtime.arena import Arena
from tests.runtime.conftest import Compile


def test_arena_is_as_large_as_planned_and_its_account_adds_up(forked_program: Program) -> None:
    session = et.Session(forked_program)
    try:
        account = forked_program.account
        assert session.arena.nbytes == forked_program.arena_nbytes == account["arena_nbytes"]
        assert sum(account["by_kind"].values()) == account["arena_nbytes"]
        assert account["peak_live_nbytes"] <= account["arena_nbytes"]
    finally:
        session.close()


@pytest.mark.parametrize(
    "stored", [{}, {"model_memory": "int8", "density": 0.5}, {"saved": "int8"}]
)
def test_training_at_the_minimum_works_and_a_byte_less_is_refused(
    forked: Compile, stored: dict
) -> None:
    least = forked(**stored).account["min_budget_nbytes"]
    program = forked(least, **stored)
    assert program.arena_nbytes == least
    trainer = et.Trainer(program, "digits")
    try:
        assert np.isfinite(trainer.fit(steps=3)["loss"])
        trainer.evaluate()
        assert trainer.session.arena.slack_is_clean()
    finally:
        trainer.close()
    with pytest.raises(BudgetError) as caught:
        forked(least - 1, **stored)
    assert caught.value.min_budget_nbytes == least


def test_every_plan_of_falling_budgets_is_smaller_and_slower(forked: Compile) -> None:
    largest = forked().arena_nbytes
    least = forked().account["min_budget_nbytes"]
    plans = [forked(int(b)).account for b in np.linspace(largest, least, 5)]
    sizes = [plan["arena_nbytes"] for plan in plans]
    extras = [plan["extra_forward_flops"] for plan in plans]
    assert sizes == sorted(sizes, reverse=True) and extras == sorted(extras)


def test_the_arena_lies_against_a_page_that_faults() -> None:
    script = (
        "import ctypes\n"
        "from edgetrain.runtime.arena import Arena\n"
        "arena = Arena(4096 + 64)\n"
        "ctypes.memset(arena.address, 1, arena.nbytes)\n"
        "print('inside', flush=True)\n"
        "ctypes.memset(arena.address {}, 1, 1)\n"
    )
    for where in ("+ arena.nbytes", "- 4096"):
        ended = subprocess.run(
            [sys.executable, "-c", script.format(where)], capture_output=True, text=True
        )
        assert (ended.stdout, ended.returncode) == ("inside\n", -11)


def test_bytes_before_the_arena_are_watched() -> None:
    import ctypes

    arena = Arena(64)
    assert arena.slack_is_clean()
    ctypes.memset(arena.address - 1, 1, 1)
    assert not arena.slack_is_clean()


@pytest.mark.parametrize("nbytes", [0, -64, 100])
def test_arena_refuses_sizes_that_no_plan_has(nbytes: int) -> None:
    with pytest.raises(ProgramError, match="multiple of 64"):
        Arena(nbytes)
