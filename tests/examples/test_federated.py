"""The federation as processes: a server and three boards, one of which is killed and returns."""

import importlib.util
import json
from pathlib import Path

import pytest

from edgetrain.importer import load_onnx
from examples.federated import run

ROUNDS = 7


@pytest.mark.slow
def test_three_boards_learn_together_and_one_comes_back(tmp_path: Path) -> None:
    if importlib.util.find_spec("flwr") is None:
        pytest.skip("Flower is not installed: pip install 'edgetrain[flower]'")
    folder = tmp_path / "federation"
    rounds = run.learned(folder, ROUNDS)
    boards = [line["boards"] for line in rounds]
    assert boards[:2] == [0, 3] and 2 in boards and boards[-1] == 3
    assert len(rounds) == ROUNDS + 1
    accuracy = rounds[-1]["accuracy"]
    assert accuracy > 0.9 and accuracy > run.central(ROUNDS) - 0.06
    plans = json.loads((folder / "plans.json").read_text())
    arenas = sorted(plan["arena-nbytes"] for plan in plans)
    assert len(plans) == 3 and arenas[0] < arenas[-1] and arenas[0] <= 110 * 1024
    assert len({plan["digest"] for plan in plans}) == 1
    assert load_onnx(folder / "trained.onnx").parameters


def test_boards_of_the_example_have_one_microbatch_and_their_own_bytes() -> None:
    programs = [run.compiled(budget) for budget in run.BUDGETS]
    assert len({program.digest() for program in programs}) == 1
    assert len({program.arena_nbytes for program in programs}) > 1
    shares = [*run.shares(3)]
    assert sum(len(share["y"]) for share in shares) == 1437
