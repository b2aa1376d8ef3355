"""The ladder of a plan: what was saved adds up, what is left is what a plan with it takes."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.cli import main
from edgetrain.compiler import plan_model
from edgetrain.compiler.ladder import (
    APPROXIMATE,
    RUNGS,
    SAME_BITS,
    SAME_MATHEMATICS,
    _kept,
    ladder,
)
from edgetrain.exporters import export_torch


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.inner = nn.Embedding(900, 16), nn.Linear(16, 64)
        self.outer, self.head = nn.Linear(64, 16), nn.Linear(16, 900)

    def forward(self, x):
        return self.head(self.outer(torch.relu(self.inner(self.tokens(x)))))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    found = tmp_path_factory.mktemp("ladder") / "words.onnx"
    export_torch(Words(), (torch.randint(900, (2, 40)),), found)
    return found


TAKEN = {
    "nothing": {},
    "fp16": {"precision": "fp16"},
    "all": {
        "precision": "fp16",
        "model_memory": "int8",
        "density": 0.5,
        "allow": ("slices",),
        "microbatch": 2,
    },
}


@pytest.mark.parametrize("taken", TAKEN)
def test_what_was_saved_adds_up_to_the_plan(path: Path, taken: str) -> None:
    model, options = et.load_onnx(path), make_options(minibatch=4, **TAKEN[taken])
    plan, front, _ = plan_model(model, options)
    rows = ladder(model, options, front, plan)
    climbed = {row.name: row for row in rows if row.taken}
    assert climbed.keys() >= {"microbatch", "recompute"}
    assert [row.name for row in rows if row.taken][:-2] == [
        rung.name for rung in RUNGS if rung.taken(options)
    ]
    bare = _kept(model, make_options(minibatch=4), 4).arena_nbytes
    assert bare - sum(row.saved_nbytes for row in climbed.values()) == plan.arena_nbytes
    assert {row.kind for row in rows} <= {SAME_BITS, SAME_MATHEMATICS, APPROXIMATE}
    if taken != "nothing":
        assert climbed["fp16"].saved_nbytes > 0


def test_what_is_left_is_what_a_plan_with_it_takes(path: Path) -> None:
    model, options = et.load_onnx(path), make_options(minibatch=4, microbatch=2)
    plan, front, _ = plan_model(model, options)
    left = {row.name: row for row in ladder(model, options, front, plan) if not row.taken}
    assert left.keys() == {rung.name for rung in RUNGS}
    for rung in RUNGS:
        if left[rung.name].problem:
            # a minibatch of several microbatches; no attention
            assert rung.name in ("fused update", "attention")
            continue
        changed = make_options(**{"minibatch": 4, "microbatch": 2, **rung.on(options)})
        least = plan_model(model, changed)[1][0].arena_nbytes
        assert front[0].arena_nbytes - left[rung.name].saved_nbytes == least


def test_plan_explain_prints_the_ladder(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["plan", str(path), "--minibatch", "4", "--microbatch", "2", "--precision", "fp16"]
    assert main([*given, "--explain"]) == 0
    out = capsys.readouterr().out
    assert "what was saved" in out and "what else there is" in out
    assert "--allow slices" in out and "same mathematics" in out and "would make" in out
    assert main([*given, "--explain", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["ladder"]
    assert [row["name"] for row in rows if row["taken"]] == ["fp16", "microbatch", "recompute"]


def test_a_rung_that_cannot_be_says_why(tmp_path: Path) -> None:
    export_torch(nn.Linear(4, 3), (torch.randn(2, 4),), tmp_path / "few.onnx")
    model, options = et.load_onnx(tmp_path / "few.onnx"), make_options(minibatch=4)
    plan, front, _ = plan_model(model, options)
    rows = {row.name: row for row in ladder(model, options, front, plan)}
    assert "so few classes" in rows["slices"].problem and not rows["int8"].problem
