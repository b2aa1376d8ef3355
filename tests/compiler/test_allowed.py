"""`--allow` permits a memory option; it is used only if it makes plans smaller."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import edgetrain as et
from edgetrain.cli import main
from edgetrain.exporters import export_torch
from tests.quick import slow_unless

WORDS, WIDTH = 40, 16


class Attending(nn.Module):
    """Attention over time steps, then a head with `classes` outputs."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.tokens, self.mix = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x):
        q, k, v = self.mix(self.tokens(x)).chunk(3, -1)
        return self.head(F.softmax(q @ k.mT, -1) @ v)


class Recurrent(nn.Module):
    """An LSTM over many steps, which can be split into segments."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, WIDTH)
        self.cells = nn.LSTM(WIDTH, 64, batch_first=True)
        self.head = nn.Linear(64, 520)

    def forward(self, x):
        return self.head(self.cells(self.tokens(x))[0])


# net, time steps, allowed -> used
CASES = {
    "few times": (lambda: Attending(WORDS), 16, ("attention",), ()),
    "many times": (lambda: Attending(WORDS), 256, ("attention",), ("attention",)),
    "many classes": (lambda: Attending(3000), 16, ("attention", "slices"), ("slices",)),
    "segments": (Recurrent, 128, ("slices",), ("slices",)),
}


@pytest.fixture(scope="module")
def path_of(tmp_path_factory: pytest.TempPathFactory):
    folder, made = tmp_path_factory.mktemp("allowed"), {}

    def path(case: str) -> Path:
        if case not in made:
            torch.manual_seed(0)
            module, times, *_ = CASES[case]
            example = torch.randint(0, WORDS, (2, times))
            made[case] = export_torch(module(), example, folder / f"{len(made)}.onnx")
        return made[case]

    return path


@pytest.mark.parametrize("case", slow_unless(CASES, lambda case: case != "segments"))
def test_a_rung_is_taken_where_it_helps(path_of, case: str) -> None:
    *_, allow, taken = CASES[case]
    given = {"minibatch": 4, "optimizer": et.Adam(lr=1e-3)}
    free = et.compile(path_of(case), allow=allow, **given)
    assert tuple(free.recipe.get("allow", ())) == taken
    least = free.account["min_budget_nbytes"]
    declined = free.account.get("declined", {})
    assert set(declined) == set(allow) - set(taken)
    assert all(row["with_nbytes"] >= row["without_nbytes"] for row in declined.values())
    plain = et.compile(path_of(case), **given).account["min_budget_nbytes"]
    assert least < plain if taken else least == plain


@pytest.mark.parametrize("case", slow_unless(CASES, lambda case: case != "segments"))
def test_a_budget_changes_no_rung_and_no_bit(path_of, case: str, tmp_path: Path) -> None:
    _, times, allow, taken = CASES[case]
    given = {"minibatch": 4, "microbatch": 2, "allow": allow}
    draw, found = np.random.default_rng(0), []
    x, y = draw.integers(0, WORDS, (2, 4, times))
    fast = et.compile(path_of(case), **given)
    for budget in (None, fast.account["min_budget_nbytes"]):
        program = et.compile(path_of(case), budget=budget, **given)
        assert tuple(program.recipe.get("allow", ())) == taken
        with et.Trainer(program, out=tmp_path / str(budget)) as trainer:
            trainer.step(x, y)
            found.append({n: a.tobytes() for n, a in trainer.session.state().items()})
    assert found[0] == found[1]


def test_plan_says_what_is_not_taken(path_of, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan", str(path_of("few times")), "--allow", "attention", "--minibatch", "4"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["declined"]["attention"]
    assert row["without_nbytes"] <= row["with_nbytes"]
    (line,) = [line for line in out.splitlines() if "allow attention" in line]
    assert f"{row['with_nbytes']:,}" in line and f"{row['without_nbytes']:,}" in line


def test_train_says_what_is_not_taken(path_of, capsys, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, WORDS, (2, 8, 16))
    np.savez(tmp_path / "data.npz", x=x, y=y)
    data = [
        "--data",
        f"npz:{tmp_path / 'data.npz'}",
        "--steps",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    command = ["train", str(path_of("few times")), "--allow", "attention", "--minibatch", "4"]
    assert main([*command, *data]) == 0
    assert "allow attention" in capsys.readouterr().err


def test_a_small_budget_proposes_only_what_helps(path_of) -> None:
    with pytest.raises(et.BudgetError) as raised:
        et.compile(path_of("few times"), minibatch=4, microbatch=1, budget=1000)
    assert "--allow attention" not in str(raised.value)
