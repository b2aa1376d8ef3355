"""`plan --report` and `train --report`: the contents of the pages, however a run ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.history import HISTORY_FILE, History
from edgetrain.program import Program
from edgetrain.report.run_page import run_page
from edgetrain.report.tape_scene import program_arena
from edgetrain.runtime.loading.program import load_program
from examples.zoo import ZOO
from tests.compiler.nets import Net
from tests.digits_runs import CHOICES, MODEL
from tests.quick import slow_except
from tests.zoo_files import zoo_file


def run(*argv: object) -> int:
    return main([str(part) for part in argv])


def data_of(path: Path) -> dict:
    found = re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    return json.loads(found[1])


def test_plan_report_has_the_arena_with_modules_and_the_plans(tmp_path: Path, capsys) -> None:
    page = tmp_path / "plan.html"
    assert run("plan", MODEL, *CHOICES, "--budget", "1MiB", "--report", page, "--json") == 0
    account = json.loads(capsys.readouterr().out)
    data = data_of(page)
    arena = data["arena"]
    assert max(arena["live"]) <= account["arena_nbytes"]
    assert max(arena["live"]) == account["peak_live_nbytes"]
    assert {"conv2", "head", "conv2.weight"} <= set(arena["names"])
    assert {"inputs", "forward", "loss", "backward", "update"} <= {p[0] for p in arena["phases"]}
    sizes = [nbytes for nbytes, *_ in data.get("frontier", [[account["arena_nbytes"]]])]
    assert account["arena_nbytes"] in sizes and sizes == sorted(sizes)
    assert "torch, at least" in page.read_text() and "edgetrain plan" in page.read_text()


def test_plan_report_hatches_what_is_computed_again(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    given = ("--minibatch", 32, "--momentum", 0.9, "--nesterov", "--budget", "256KiB")
    assert run("plan", MODEL, *given, "--report", page) == 0
    arena = data_of(page)["arena"]
    assert any(arena["boxes"][7::8]) and "recompute" in {p[0] for p in arena["phases"]}
    assert "url(#h" in page.read_text()


@pytest.mark.parametrize("name", ["plan.pdf", "missing/plan.html"])
def test_reports_that_cannot_be_written_are_refused_first(tmp_path, capsys, name: str) -> None:
    for argv in (["plan", MODEL], ["train", MODEL, "--data", "digits", "--epochs", 1]):
        assert run(*argv, *CHOICES, "--report", tmp_path / name) == 2
        err = capsys.readouterr().err
        assert "--report" in err and err.count("\n") == 1


def test_the_arena_of_a_program_is_that_of_its_plan(digits_edge: Path) -> None:
    program: Program = load_program(digits_edge)
    arena = program_arena(program, "digits")
    assert arena.peak[1] == program.account["peak_live_nbytes"]
    assert all(b.offset >= 0 and b.offset + b.nbytes <= program.arena_nbytes for b in arena.boxes)
    kinds = {box.kind for box in arena.boxes}
    assert {"params", "grads", "saved", "transient", "workspace", "io"} <= kinds
    assert [phase.name for phase in arena.phases][:4] == ["inputs", "forward", "loss", "backward"]
    for step in range(len(arena.steps)):  # no two lifetimes share a byte
        taken = sorted((b.offset, b.offset + b.nbytes) for b in arena.at(step))
        assert all(a[1] <= b[0] for a, b in zip(taken, taken[1:], strict=False)), step


@pytest.mark.parametrize("least", [True, False])
@pytest.mark.parametrize(
    "name",
    slow_except(
        ["mlp", "keyword", "densenet", "autoencoder", "lstm_language_model"], "mlp", "keyword"
    ),
)
def test_the_page_of_a_run_has_the_peak_and_the_recomputation_of_its_plan(
    tmp_path: Path, name: str, least: bool
) -> None:
    entry, model = ZOO[name], et.load_onnx(zoo_file(name))
    given = {"loss": entry.loss, "minibatch": 8, "microbatch": 8, "max_extra_forward": 3}
    budget = et.plan(model, effort="normal", **given)["min_budget_nbytes"] if least else None
    program = et.compile(model, budget=budget, **given)
    arena, account = program_arena(program, name), program.account
    assert arena.peak[1] == account["peak_live_nbytes"]
    assert (account["extra_forward_flops"] > 0) == least
    again = {box.again for box in arena.boxes}
    assert again == ({True, False} if least else {False})
    assert ("recompute" in {phase.name for phase in arena.phases}) == least
    run_page("net", program, History(), "running").write(tmp_path / "page.html")
    share = f"{100 * account['extra_forward_flops']:.1f} %"
    assert "of a forward" in (tmp_path / "page.html").read_text()
    assert share in (tmp_path / "page.html").read_text()


def test_train_report_has_curves_and_confusion(tmp_path: Path, digits_edge: Path) -> None:
    page, out = tmp_path / "run.html", tmp_path / "run"
    given = ("--data", "digits", "--epochs", 2, "--out", out, "--metrics", "f1,confusion")
    assert run("train", digits_edge, *given, "--report", page) == 0
    data, text = data_of(page), page.read_text()
    assert {"loss", "lr", "norm", "metrics", "arena"} <= set(data)
    assert [one["name"] for one in data["metrics"]] == ["accuracy", "f1"]
    assert len(data["loss"][1]["x"]) == 2  # evaluations
    assert "Confusion matrix of 10 classes" in text and "edgetrain: done" in text
    history = History.read(out / HISTORY_FILE)
    assert history.last == data["loss"][0]["x"][-1]


def test_the_page_of_a_run_with_two_losses_has_metrics_of_each_output(tmp_path: Path) -> None:
    net = Net(5)
    net.add("MatMul", ["x", net.weight("wc", 5, 2)], "class")
    net.add("MatMul", ["x", net.weight("wb", 5, 3)], "box")
    losses = {"class": "cross_entropy", "box": "mse"}
    program = et.compile(net.model("class", "box"), losses=losses, minibatch=8)
    history, page = History(), tmp_path / "page.html"
    history.add({"event": "epoch", "epoch": 1, "step": 1, "loss": 1.0, "seconds": 1.0})
    history.add({"event": "step", "step": 1, "loss": 1.0, "lr": 0.1, "grad_norm": 1.0,
                 "loss_scale": 1.0, "skipped": False})  # fmt: skip
    history.add({"event": "eval", "epoch": 1, "loss": 2.0, "samples": 3, "class_loss": 1.5,
                 "box_loss": 0.5, "class_accuracy": 0.5, "class_f1": 0.4, "box_mae": 0.25,
                 "class_confusion": [[1, 0], [0, 2]]})  # fmt: skip
    history.write(tmp_path / "history.json")
    again = History.read(tmp_path / "history.json")
    assert again.confusions == {"class_confusion": {"epoch": 1, "counts": [[1, 0], [0, 2]]}}
    run_page("net", program, again, "done").write(page)
    data, text = data_of(page), page.read_text()
    names = {key: [one["name"] for one in data[key]] for key in ("loss", *_OF_OUTPUTS)}
    assert names == {
        "loss": ["training loss", "evaluation loss", "class_loss", "box_loss"],
        **_OF_OUTPUTS,
    }
    assert "Confusion of class" in text and "loss of box" in text and "0.25" in text


_OF_OUTPUTS = {"metrics.class": ["class_accuracy", "class_f1"], "metrics.box": ["box_mae"]}


def test_train_report_of_a_sparse_run_shows_its_layers(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    given = ("--data", "digits", "--steps", 3, "--density", 0.3, "--no-eval")
    out = tmp_path / "run"
    assert run("train", MODEL, *CHOICES, *given, "--out", out, "--report", page) == 0
    assert "Sparsity by layer" in page.read_text() and "conv3.weight" in page.read_text()


def test_a_resumed_run_goes_on_with_its_history(tmp_path: Path, digits_edge: Path) -> None:
    page, out = tmp_path / "run.html", tmp_path / "run"
    common = ("--data", "digits", "--report", page)
    assert run("train", digits_edge, *common, "--steps", 20, "--out", out) == 0
    assert run("train", "--resume", out, *common, "--steps", 30) == 0
    assert data_of(page)["loss"][0]["x"] == list(range(1, 31))
    assert "resumed at step 20" in page.read_text()


def test_a_killed_run_leaves_a_report(tmp_path: Path, digits_edge: Path) -> None:
    page, out = tmp_path / "run.html", tmp_path / "run"
    argv = ["train", digits_edge, "--data", "digits", "--epochs", "100000", "--out", out,
            "--report", page, "--no-eval"]  # fmt: skip
    child = subprocess.Popen(
        [sys.executable, "-m", "edgetrain", *map(str, argv)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while not (page.exists() and len(data_of(page).get("loss", [{"x": []}])[0]["x"]) > 3):
        assert time.monotonic() < until and child.poll() is None
        time.sleep(0.1)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert "edgetrain: running" in page.read_text() and "</html>" in page.read_text()
    assert run("train", "--resume", out, "--data", "digits", "--steps", 3, "--report", page) in (
        0,
        4,
    )
    assert "edgetrain: running" not in page.read_text()


def test_a_run_that_fails_says_so_on_its_page(tmp_path: Path, digits_edge: Path, capsys) -> None:
    page = tmp_path / "run.html"
    given = ("--data", "digits", "--steps", 200, "--lr", 1e30, "--out", tmp_path / "run")
    assert run("train", digits_edge, *given, "--report", page, "--no-eval") == 1
    capsys.readouterr()
    assert "not finite" in page.read_text() and "Skipped steps" in page.read_text()
