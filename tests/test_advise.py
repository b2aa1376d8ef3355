"""`advise`: every row is correct, and its command works as stated."""

import json
import shlex
from collections import OrderedDict
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

from edgetrain.api import make_options
from edgetrain.cli import main
from edgetrain.compiler.plan.advise import ADAPTED, HOW, WHAT, advise, best, ways
from edgetrain.errors import UsageError
from edgetrain.exporters import export_torch
from edgetrain.importer import load_onnx
from tests.digits_runs import CHOICES, MODEL
from tests.zoo_files import zoo_file

BUDGET = "60KB"


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    status = main([str(part) for part in argv])
    return status, capsys.readouterr().out


def test_every_command_does_what_its_row_says(capsys, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "my model.onnx").symlink_to(MODEL)
    monkeypatch.chdir(tmp_path)
    given = ("my model.onnx", *CHOICES, "--budget", BUDGET, "--json")
    status, out = run(capsys, "advise", *given)
    rows = json.loads(out)["ways"]
    assert status == 0 and {row["fits"] for row in rows} == {True, False}
    assert [row["fits"] for row in rows] == sorted((row["fits"] for row in rows), reverse=True)
    times = [row["seconds_per_minibatch"] for row in rows if row["fits"]]
    assert times == sorted(times) and sum(row["trains_most"] for row in rows) == 1
    for row in rows:
        program, *argv = shlex.split(row["command"])
        status, out = run(capsys, *argv, "--json")
        account = json.loads(out)
        assert program == "edgetrain" and status == (0 if row["fits"] else 3), row["command"]
        assert account["min_budget_nbytes"] == row["min_budget_nbytes"]
        assert account["arena_nbytes"] == row["arena_nbytes"]
        if row["fits"]:
            assert account["training"]["trained"]["numbers"] == row["trained"]
            assert account["seconds_per_minibatch"] == row["seconds_per_minibatch"]


def test_advice_is_the_three_ways_that_cost_least(capsys) -> None:
    given = ("advise", MODEL, *CHOICES, "--budget", BUDGET)
    rows = [row for row in json.loads(run(capsys, *given, "--json")[1])["ways"] if row["fits"]]
    status, out = run(capsys, *given)
    commands = [line.split("  ")[-1] for line in out.splitlines() if "  edgetrain plan " in line]
    by_command = {row["command"]: row for row in rows}
    shown = [by_command[command] for command in commands]
    assert status == 0 and len(shown) == 3 and shown[0]["trains_most"]
    trained = [row["trained"] for row in shown]
    assert trained == sorted((row["trained"] for row in rows), reverse=True)[:3]
    status, out = run(capsys, "advise", MODEL, *CHOICES, "--budget", 1000)
    assert status == 3 and out.count("  edgetrain plan ") == 3


def test_advice_is_a_table_and_commands(capsys) -> None:
    status, out = run(capsys, "advise", MODEL, *CHOICES, "--budget", BUDGET, "--all")
    lines = out.splitlines()
    assert status == 0 and "ways to train it fit in 60,000 bytes" in lines[0]
    assert any("fits, trains most" in line for line in lines) and "too large" in out
    commands = [line for line in lines if "  edgetrain plan " in line]
    assert len(commands) == sum("fits" in line or "too large" in line for line in lines[1:]) > 8


def test_nothing_that_fits_exits_3(capsys) -> None:
    status, out = run(capsys, "advise", MODEL, *CHOICES, "--budget", 1000)
    assert status == 3 and out.startswith("0 of ")


def test_what_is_given_is_not_varied(capsys) -> None:
    model = load_onnx(MODEL)
    asked = list(ways(model, {"train": ["head.*"], "precision": "fp16"}))
    assert [(way.what, way.how) for way in asked] == [("as asked", "as asked")]
    assert {way.how for way in ways(model, {"density": 0.5})} == {
        how for how, options, _ in HOW if "density" not in options and options
    } | {"as asked"}
    assert [way.what for way in ways(model, {"lora": "targets=head", "precision": "fp16"})] == [
        "as asked"
    ]
    every = list(ways(model, {}))
    said = {how for how, _, _ in HOW} | {how for how, _ in ADAPTED}
    assert {way.how for way in every} == said
    assert len({(way.what, way.how) for way in every}) == len(every)
    assert list(ways(model, {"precision": "fp32"}))[0].options == {}


@pytest.mark.parametrize("part", ["weights", "state", "grads"])
def test_storage_of_one_part_that_is_given_is_said_as_asked(part: str) -> None:
    found = [way.how for way in ways(load_onnx(MODEL), {part: "int8"}) if not way.options]
    assert found == ["as asked"]


def test_a_model_that_cannot_be_trained_says_why() -> None:
    with pytest.raises(UsageError, match="microbatch"):
        advise(load_onnx(MODEL), make_options, {"minibatch": 8, "microbatch": 3}, None)
    assert best([]) is None


def test_adapters_are_among_the_ways_of_a_model_of_products(capsys, tmp_path: Path) -> None:
    """Adapters on attention, in commands that work as printed."""
    torch.manual_seed(0)
    path, sizes = (
        tmp_path / "model.onnx",
        {"q_proj": (64, 64), "v_proj": (64, 256), "top": (256, 5)},
    )
    layers = {name: torch.nn.Linear(*size) for name, size in sizes.items()}
    export_torch(torch.nn.Sequential(OrderedDict(layers)), (torch.randn(2, 64),), path)
    found = [way for way in ways(load_onnx(path), {}) if way.what == "adapters"]
    assert [way.how for way in found] == [how for how, _ in ADAPTED]
    given = ("--minibatch", 4, "--microbatch", 4, "--precision", "fp32", "--json")
    status, out = run(capsys, "advise", path, *given)
    rows = [row for row in json.loads(out)["ways"] if row["what"] == "adapters"]
    assert status == 0 and {row["how"] for row in rows} == {
        "as asked",
        "fp32, frozen weights int8",
    }
    for row in rows:
        status, out = run(capsys, *shlex.split(row["command"])[1:], "--json")
        account = json.loads(out)
        assert status == 0 and account["arena_nbytes"] == row["arena_nbytes"]
        assert account["mapped_nbytes"] == row["mapped_nbytes"] > 0
        assert account["training"]["trained"]["numbers"] == row["trained"]
        assert account["seconds_per_minibatch"] == row["seconds_per_minibatch"]
    status, out = run(capsys, "advise", path, *given[:-1], "--all")
    assert "mapped" in out and "adapters" in out


@pytest.mark.parametrize("name", ["mobilenet_v2", "transformer_encoder", "lstm_language_model"])
def test_patterns_are_few_and_match_what_they_are_for(name: str) -> None:
    model = load_onnx(zoo_file(name))
    found = {what: patterns(model) for what, patterns in WHAT.items() if what != "all"}
    assert all(len(patterns) <= 10 for patterns in found.values())
    matched = {
        what: {n for n in model.parameters if any(fnmatchcase(n, p) for p in patterns)}
        for what, patterns in found.items()
    }
    head = matched["the head"]
    assert head and all(n.startswith("head.") for n in head)
    assert head <= matched["the last quarter"] <= matched["the last half"] < set(model.parameters)
    biases = {n for n in model.parameters if ".bias" in n} | head
    assert matched["biases and head"] == biases
    if name != "lstm_language_model":
        assert len(matched["norms and head"]) > len(head) and found["norms and head"]
        rest = matched["norms and head"] - head
        assert all(model.initializers[n].ndim == 1 for n in rest)
