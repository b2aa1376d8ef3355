"""Memory options of a plan: savings add up; an unused option saves as much as it claims."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.cli import main
from edgetrain.compiler import plan_model
from edgetrain.compiler.advice.memory_options import (
    APPROXIMATE,
    MEMORY_OPTIONS,
    SAME_BITS,
    SAME_MATHEMATICS,
    draft_saving_everything,
    memory_options,
    savings,
)
from edgetrain.compiler.advice.suggest import suggested_lora
from edgetrain.compiler.compilation import Compilation
from edgetrain.exporters import export_torch
from tests.quick import slow_except

from .nets import Net


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
    found = tmp_path_factory.mktemp("words") / "words.onnx"
    export_torch(Words(), (torch.randint(900, (2, 40)),), found)
    return found


TAKEN = {
    "nothing": {},
    "fp16": {"precision": "fp16"},
    "bf16": {"precision": "bf16"},
    "blocks": {"model_memory": "int8-nearest"},
    "weights": {"weights": "bf16", "state": "bf16"},
    "all": {
        "precision": "fp16",
        "model_memory": "int8",
        "density": 0.5,
        "allow": ("slices",),
        "microbatch": 2,
    },
    "adapters": {"lora": "r=2,targets=inner", "frozen": "int8", "precision": "fp16"},
}


@pytest.mark.parametrize("taken", slow_except(TAKEN, "all"))
def test_what_was_saved_adds_up_to_the_plan(path: Path, taken: str) -> None:
    model, options = et.load_onnx(path), make_options(minibatch=4, **TAKEN[taken])
    plan, front, _ = plan_model(model, options)
    rows = savings(front, plan)
    climbed = {row.name: row for row in rows if row.taken}
    assert climbed.keys() >= {"microbatch", "recompute"}
    assert [row.name for row in rows if row.taken][:-2] == [
        option.name
        for option in memory_options(Compilation(model, options))
        if option.taken(options)
    ]
    bare = Compilation(model, make_options(minibatch=4))
    most = draft_saving_everything(bare, 4).arena_nbytes
    assert most - sum(row.saved_nbytes for row in climbed.values()) == plan.arena_nbytes
    assert {row.kind for row in rows} <= {SAME_BITS, SAME_MATHEMATICS, APPROXIMATE}
    formats = TAKEN[taken].keys() & {"precision", "model_memory", "weights"}
    assert climbed.keys() >= {TAKEN[taken][option] for option in formats}
    if precision := TAKEN[taken].get("precision"):
        assert climbed[precision].saved_nbytes > 0


def test_what_is_left_is_what_a_plan_with_it_takes(path: Path) -> None:
    model, options = et.load_onnx(path), make_options(minibatch=4, microbatch=2)
    plan, front, _ = plan_model(model, options)
    left = {row.name: row for row in savings(front, plan) if not row.taken}
    assert left.keys() == {option.name for option in memory_options(Compilation(model, options))}
    assert left.keys() == {"adapters", "frozen", *(option.name for option in MEMORY_OPTIONS)}
    for option in memory_options(Compilation(model, options)):
        if left[option.name].problem:
            # several microbatches per minibatch; every weight is trained; no attention
            assert option.name in ("fused update", "frozen", "attention")
            continue
        changed = make_options(**{"minibatch": 4, "microbatch": 2, **option.on(options)})
        least = plan_model(model, changed)[1][0].arena_nbytes
        assert front[0].arena_nbytes - left[option.name].saved_nbytes == least


def test_plan_explain_prints_the_ladder(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["plan", str(path), "--minibatch", "4", "--microbatch", "2", "--precision", "fp16"]
    assert main([*given, "--explain"]) == 0
    out = capsys.readouterr().out
    assert "savings, starting with" in out and "other options" in out
    assert "--allow slices" in out and "same mathematics" in out and "would make" in out
    assert main([*given, "--explain", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["ladder"]
    assert [row["name"] for row in rows if row["taken"]] == ["fp16", "microbatch", "recompute"]


def test_a_rung_that_cannot_be_says_why(tmp_path: Path) -> None:
    export_torch(nn.Linear(4, 3), (torch.randn(2, 4),), tmp_path / "few.onnx")
    model, options = et.load_onnx(tmp_path / "few.onnx"), make_options(minibatch=4)
    plan, front, _ = plan_model(model, options)
    rows = {row.name: row for row in savings(front, plan)}
    assert "too few classes" in rows["slices"].problem and not rows["int8"].problem


FROZEN = [
    ({"train": ["inner.*"]}, False, SAME_BITS, "--frozen fp32"),
    ({"train": ["inner.*"], "precision": "fp16"}, False, SAME_BITS, "--frozen fp16"),
    ({"train": ["inner.*"], "model_memory": "int8"}, None, "", ""),
    ({"train": ["inner.*"], "model_memory": "int8-nearest"}, None, "", ""),
    ({"train": ["inner.*"], "frozen": "fp32"}, True, SAME_BITS, "--frozen fp32"),
    ({"train": ["inner.*"], "frozen": "int4"}, True, APPROXIMATE, "--frozen int4"),
]


@pytest.mark.parametrize(("given", "taken", "kind", "typed"), FROZEN)
def test_the_rest_in_the_file_is_of_the_class_of_its_storage(path, given, taken, kind, typed):
    model, options = et.load_onnx(path), make_options(**given)
    found = {option.name: option for option in memory_options(Compilation(model, options))}.get(
        "frozen"
    )
    assert (found is None) == (taken is None)
    if found:
        assert (found.taken(options), found.kind, found.typed) == (taken, kind, typed)


def test_adapters_are_proposed_where_they_are_small(path: Path, tmp_path: Path) -> None:
    assert suggested_lora(et.load_onnx(path)) == "r=8,targets=inner,outer"
    export_torch(nn.Linear(4, 3), (torch.randn(2, 4),), tmp_path / "few.onnx")
    few = et.load_onnx(tmp_path / "few.onnx")
    assert not suggested_lora(few)
    names = [option.name for option in memory_options(Compilation(few, make_options()))]
    assert "adapters" not in names and "frozen" in names


def test_a_model_that_adapters_alone_can_train_has_a_ladder() -> None:
    net = Net(32)
    net.constants["w"] = net.rng.standard_normal((32, 32)).astype("float32")
    net.add("MatMul", ["x", "w"], "logits")
    model, options = net.model("logits"), make_options(minibatch=4, lora="r=1,targets=w")
    plan, front, _ = plan_model(model, options)
    taken = [row.name for row in savings(front, plan) if row.taken]
    assert taken == ["microbatch", "recompute"]
