"""The command line: its output and exit status."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.cli.commands import plan, warm
from edgetrain.compiler import cost
from edgetrain.screen import waiting
from tests.digits_runs import CHOICES, MODEL

PLAN_KEYS = {
    "feasible", "arena_nbytes", "budget_nbytes", "min_budget_nbytes", "peak_live_nbytes", "by_kind",
    "tape_nbytes", "minibatch", "microbatch", "threads", "extra_forward_flops", "steps",
    "plan_seconds", "effort", "bound_nbytes",
}  # fmt: skip
KINDS = [
    "params", "indices", "grads", "optimizer", "saved", "transient", "workspace", "io", "padding",
]  # fmt: skip

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs a command in this process: (status, stdout, stderr)."""

    def call(*argv: object) -> tuple[int, str, str]:
        status = main([str(part) for part in argv])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def trained(digits_edge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run after 90 steps."""
    out = tmp_path_factory.mktemp("trained") / "run"
    argv = ["train", digits_edge, "--data", "digits", "--steps", 90, "--out", out, "--no-eval"]
    assert main([str(part) for part in argv]) == 0
    return out


def is_one_line(text: str) -> bool:
    return text.count("\n") == 1 and text.endswith("\n") and "Traceback" not in text


def test_plan_explains_the_choice_and_draws_the_frontier(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "pareto.svg"
    status, out, _ = run(
        "plan", MODEL, *CHOICES, "--budget", "1MiB", "--explain", "--pareto", picture
    )
    assert status == 0
    assert "Chosen: " in out and "largest live: " in out and "The next smaller plan: " in out
    assert picture.read_text().startswith("<svg") and "chosen" in picture.read_text()


def test_plan_lists_the_frontier_as_json(run: Run) -> None:
    status, out, _ = run("plan", MODEL, *CHOICES, "--pareto", "--json")
    rows = json.loads(out)["frontier"]
    assert status == 0 and rows[-1]["relative_time"] == 1.0
    sizes = [row["arena_nbytes"] for row in rows]
    times = [row["relative_time"] for row in rows]
    assert sizes == sorted(sizes) and times == sorted(times, reverse=True)


def test_plan_calibrates_this_machine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, bytes] = {}
    files = SimpleNamespace(write=lambda name, _, data: kept.update({name: data}))
    monkeypatch.setattr(cost, "disk", files)
    monkeypatch.setattr(cost, "_measured", [])
    status, _, err = run("plan", MODEL, *CHOICES, "--calibrate")
    assert status == 0 and "GFLOP/s" in err
    assert cost.rates() == cost.Rates(**json.loads(kept["rates.json"])) != cost.Rates()


def test_plan_json_has_the_promised_keys_and_adds_up(run: Run) -> None:
    status, out, err = run("plan", MODEL, *CHOICES, "--budget", "1MiB", "--json")
    account = json.loads(out)
    assert (status, err) == (0, "")
    assert account.keys() >= PLAN_KEYS
    assert list(account["by_kind"]) == KINDS
    assert sum(account["by_kind"].values()) == account["arena_nbytes"] <= 2**20
    assert account["budget_nbytes"] == 2**20 and account["feasible"] is True


def test_plan_at_the_minimum_fits_and_one_byte_less_exits_3(run: Run) -> None:
    least = json.loads(run("plan", MODEL, *CHOICES, "--json")[1])["min_budget_nbytes"]
    status, out, _ = run("plan", MODEL, *CHOICES, "--budget", least, "--json")
    assert (status, json.loads(out)["arena_nbytes"]) == (0, least)
    status, out, err = run("plan", MODEL, *CHOICES, "--budget", least - 1, "--json")
    assert status == 3 and is_one_line(err)
    assert str(least) in err and "peak at step" in err and "largest live" in err
    answer = json.loads(out)
    assert answer["feasible"] is False and answer["min_budget_nbytes"] == least


def test_plan_prints_the_account_and_the_frontier(run: Run) -> None:
    status, out, _ = run("plan", MODEL, *CHOICES)
    assert status == 0
    assert "arena" in out and "workspace" in out and "chosen" in out


def test_plan_lists_what_is_trained_what_is_frozen_and_what_moves(run: Run) -> None:
    def listed(*options: str) -> tuple[list[str], dict]:
        argv = ["plan", MODEL, *CHOICES, *options]
        lines = [line for line in run(*argv)[1].splitlines() if not line.startswith(" ")]
        return lines, json.loads(run(*argv, "--json")[1])["training"]

    lines, facts = listed("--freeze", "conv1.*", "--freeze", "norm1.*")
    for kind, count in {"trained": 8, "frozen": 3, "moves": 4, "stays": 2}.items():
        first, nbytes = facts[kind]["names"][0], f"{facts[kind]['nbytes']:,} bytes"
        (line,) = (line for line in lines if f": {count} " in line and first in line)
        assert nbytes in line
        assert len(facts[kind]["names"]) == facts[kind]["count"] == count
    assert facts["stays"]["names"] == ["norm1.running_mean", "norm1.running_var"]
    lines, facts = listed("--freeze", "norm1.*", "--no-freeze-bn")
    assert (facts["moves"]["count"], facts["stays"]["count"]) == (6, 0)
    lines, facts = listed("--freeze-bn", "--density", "0.5")
    assert facts["stays"]["count"] == 6 and facts["frozen"]["count"] == 0
    assert {"sparse: conv2.weight, conv3.weight", "dense (first convolution): conv1.weight",
            "dense (classifier): head.weight"} <= set(lines)  # fmt: skip


def test_plan_draws_the_arena(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    status, _, _ = run("plan", MODEL, *CHOICES, "--budget", "1MiB", "--picture", picture)
    assert status == 0
    text = picture.read_text()
    assert text.startswith("<svg") and "conv3.weight" in text and "peak" in text
    assert "@keyframes" not in text
    assert run("plan", MODEL, *CHOICES, "--picture", picture, "--moving")[0] == 0
    assert "@keyframes" in picture.read_text()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "COMMAND"),
        (["plan"], "MODEL.onnx"),
        (["fly"], "fly"),
        (["plan", "m.onnx", "--budget", "6.7XB"], "6.7XB"),
        (["plan", "m.onnx", "--budget", "0"], "more than 0"),
        (["plan", "m.onnx", "--budg", "1MB"], "--budg"),
        (["plan", "m.onnx", "--optimizer", "adam", "--momentum", "0.9"], "--momentum"),
        (["plan", "m.onnx", "--nesterov"], "nesterov"),
        (["plan", "m.onnx", "--loss", "mse", "--label-smoothing", "0.1"], "--label-smoothing"),
        (["plan", "m.onnx", "--dim", "T"], "NAME=SIZE"),
        (["plan", "m.onnx", "--density-override", "conv1.*"], "PATTERN=DENSITY"),
        (["plan", MODEL, "--density-override", "conv9.*=0.5"], "conv9.*"),
        (["plan", "m.onnx", "--density-override", "conv1.*=2"], "at most 1"),
        (["plan", "m.onnx", "--rewiring", "rigl"], "--rewiring"),
        (["plan", "m.onnx", "--minibatch", "10", "--microbatch", "3"], "divisor"),
        (["plan", "m.onnx", "--picture", "plan.gif"], ".svg"),
        (["plan", "m.onnx", "--picture", "plan.png", "--moving"], "--moving"),
        (["plan", "m.onnx", "--moving"], "--picture"),
        (["train", "--data", "digits", "--epochs", "1"], "no model"),
        (["train", "m.onnx", "--data", "digits"], "--epochs"),
        (["train", MODEL, "--data", "stars", "--epochs", "1", *CHOICES], "stars"),
    ],
)
def test_wrong_usage_exits_2_in_one_line(run: Run, argv: list, words: str) -> None:
    status, out, err = run(*argv)
    assert (status, out) == (2, "")
    assert is_one_line(err) and words in err


@pytest.mark.parametrize("command", ["plan", "inspect", "parity"])
def test_bad_models_exit_4_in_one_line(run: Run, tmp_path: Path, command: str) -> None:
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"\x08\x96garbage" * 40)
    for file in (garbage, tmp_path / "missing.onnx", tmp_path):
        status, _, err = run(command, file)
        assert status == 4 and is_one_line(err) and str(file) in err


def test_bad_data_programs_and_runs_exit_4(run: Run, tmp_path: Path, digits_edge: Path) -> None:
    broken = tmp_path / "broken.edge"
    broken.write_bytes(digits_edge.read_bytes()[:-100])
    cases = [
        ("train", digits_edge, "--data", f"npz:{tmp_path}/none.npz", "--epochs", 1),
        ("eval", broken, "--data", "digits"),
        ("inspect", broken),
        ("train", "--resume", tmp_path / "nowhere", "--data", "digits", "--epochs", 1),
        ("eval", tmp_path, "--data", "digits"),
        ("export", tmp_path, "-o", tmp_path / "t.onnx"),
    ]
    for argv in cases:
        status, _, err = run(*argv)
        assert (status, is_one_line(err)) == (4, True), (argv, err)


def test_unexpected_errors_are_one_line_and_a_traceback_with_debug(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: str) -> None:
        raise KeyError("conv1")

    monkeypatch.setattr(plan, "load_onnx", broken)
    status, _, err = run("plan", "m.onnx")
    assert status == 1 and is_one_line(err) and "report" in err and "KeyError" in err
    status, _, err = run("plan", "m.onnx", "--debug")
    assert status == 1 and "Traceback" in err


def test_compile_writes_a_program(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.edge"
    status, out, _ = run("compile", MODEL, *CHOICES, "-o", path, "--json")
    assert status == 0 and json.loads(out)["path"] == str(path)
    status, out, _ = run("inspect", path, "--json")
    assert status == 0 and json.loads(out)["recipe"]["optimizer"]["momentum"] == 0.9


def test_compile_takes_densities_their_distribution_and_rewiring(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.edge"
    status, _, _ = run(
        "compile", MODEL, *CHOICES, "-o", path, "--density", 0.5, "--density-override",
        "conv2.*=0.25", "--density-override", "conv3.weight=1", "--density-override",
        "conv1.weight=0.5", "--distribution", "erk", "--rewiring", "set",
    )  # fmt: skip
    recipe = json.loads(run("inspect", path, "--json")[1])["recipe"]
    assert status == 0
    assert recipe["density_overrides"] == {
        "conv2.*": 0.25, "conv3.weight": 1.0, "conv1.weight": 0.5,
    }  # fmt: skip
    assert (recipe["distribution"], recipe["rewiring"]["name"]) == ("erk", "set")
    shares = {name: share / np.prod(shape) for name, shape, share, *_ in recipe["sparse_layers"]}
    assert shares == {"conv1.weight": 0.5, "conv2.weight": 0.25}


def test_train_json_is_a_line_for_each_event(run: Run, tmp_path: Path, digits_edge: Path) -> None:
    out_dir = tmp_path / "run"
    status, out, err = run(
        "train", digits_edge, "--data", "digits", "--epochs", 1, "--out", out_dir, "--json"
    )
    events = [json.loads(line) for line in out.splitlines()]
    kinds = [event["event"] for event in events]
    assert (status, err) == (0, "")
    assert kinds[0] == "start" and kinds[-1] == "done" and kinds.count("step") == 89
    assert events[0]["process_nbytes"] > 0
    evaluated = events[kinds.index("eval")]
    assert evaluated["samples"] == 360 and evaluated["accuracy"] > 0.5
    assert (out_dir / "program.edge").exists() and (out_dir / "step-00000089.ckpt").exists()


def test_train_from_onnx_takes_the_plans_options(run: Run, tmp_path: Path) -> None:
    status, out, err = run(
        "train", MODEL, *CHOICES, "--budget", "1MiB", "--data", "digits", "--steps", 3,
        "--lr-schedule", "cosine", "--warmup-steps", 1, "--out", tmp_path / "run", "--no-eval",
    )  # fmt: skip
    assert status == 0
    assert "arena" in out and "total" in out and "plus the process: " in out
    assert "epoch 1: loss" in err


def test_train_without_out_numbers_its_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits_edge: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run("train", digits_edge, "--data", "digits", "--steps", 1, "--no-eval")[0] == 0
    assert sorted(p.name for p in Path("runs").iterdir()) == ["digits-1", "digits-2"]


def test_train_refuses_plan_options_with_a_program(run: Run, digits_edge: Path) -> None:
    status, _, err = run(
        "train", digits_edge, "--data", "digits", "--epochs", 1, "--precision", "fp16"
    )
    assert status == 2 and is_one_line(err) and "--precision" in err


@pytest.mark.parametrize("command", [["data", "digits"], ["inspect"], ["warm"]])
def test_compiler_options_for_a_program_are_refused(
    run: Run, digits_edge: Path, command: list[str]
) -> None:
    status, _, err = run(*command, digits_edge, "--minibatch", 7)
    assert status == 2 and is_one_line(err)
    assert f"--minibatch: {digits_edge} is already compiled" in err


@pytest.mark.parametrize("suffix", [".onnx", ".ckpt", ".safetensors"])
def test_compile_refuses_the_name_of_another_kind_of_file(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"m{suffix}"
    out.write_bytes(b"mine")
    status, _, err = run("compile", MODEL, *CHOICES, "-o", out)
    assert status == 2 and is_one_line(err) and str(out) in err and ".edge" in err
    assert out.read_bytes() == b"mine"


def test_train_says_that_two_checkpoints_are_kept_at_least(
    run: Run, tmp_path: Path, digits_edge: Path
) -> None:
    argv = ("--data", "digits", "--steps", 3, "--save-steps", 1, "--save-total-limit", 1)
    status, out, _ = run("train", digits_edge, *argv, "--no-eval", "--out", tmp_path / "run")
    assert status == 0 and "last 2 kept" in out
    assert len([*(tmp_path / "run").glob("*.ckpt")]) == 2


def test_train_refuses_a_directory_that_holds_a_run(
    run: Run, trained: Path, digits_edge: Path
) -> None:
    status, _, err = run("train", digits_edge, "--data", "digits", "--epochs", 1, "--out", trained)
    assert status == 2 and "--resume" in err


def test_resume_goes_on_and_refuses_another_recipe(run: Run, trained: Path, tmp_path: Path) -> None:
    base = ("train", "--resume", trained, "--data", "digits", "--steps", 92, "--no-eval")
    status, out, _ = run(*base, "--out", tmp_path / "on", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [e["step"] for e in events if e["event"] in ("resume", "step")] == [90, 91, 92]
    status, _, err = run(*base, "--out", tmp_path / "slower", "--lr", 0.01, "--max-grad-norm", 1)
    assert status == 0
    assert "from step 90 on: lr 0.01 (was 0.05), max_grad_norm 1 (was 0)" in err, err[:300]
    status, _, err = run(*base, "--out", tmp_path / "other", "--lr-schedule", "cosine")
    assert status == 4 and is_one_line(err)
    status, _, err = run(base[0], MODEL, *base[1:], "--minibatch", 16, "--microbatch", 8)
    assert status == 4 and is_one_line(err) and "program.edge" in err


def test_eval_reads_runs_and_programs(run: Run, trained: Path, digits_edge: Path) -> None:
    status, out, _ = run("eval", trained, "--data", "digits", "--json")
    after = json.loads(out)
    assert status == 0 and after["samples"] == 360
    before = json.loads(run("eval", digits_edge, "--data", "digits", "--json")[1])
    assert after["accuracy"] > 0.6 > 0.3 > before["accuracy"]
    assert run("eval", trained, "--data", "digits", "--threads", 1)[1].startswith("loss")


def test_export_computes_the_same_in_onnxruntime(run: Run, trained: Path, tmp_path: Path) -> None:
    from examples.digits.check import our_logits, samples, their_logits

    path = tmp_path / "trained.onnx"
    status, out, _ = run("export", trained, "-o", path)
    assert status == 0 and str(path) in out
    x, _ = samples()
    ours, theirs = our_logits(str(trained), x), their_logits(str(path), x)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)  # another summation order
    np.testing.assert_array_equal(ours.argmax(1), theirs.argmax(1))


def test_inspect_reads_models_programs_and_checkpoints(
    run: Run, trained: Path, tmp_path: Path
) -> None:
    status, out, _ = run("inspect", MODEL, "--json")
    facts = json.loads(out)
    assert status == 0 and facts["ops"]["Conv"] == 3 and facts["unsupported"] == []
    checkpoint = trained / "step-00000090.ckpt"
    facts = json.loads(run("inspect", checkpoint, "--json")[1])
    assert facts["meta"]["step"] == 90 and "conv1.weight" in facts["tensors"]
    for file in (MODEL, trained / "program.edge", checkpoint):
        status, out, _ = run("inspect", file)
        assert status == 0 and out.startswith(str(file))
    assert run("inspect", tmp_path / "x.txt")[0] == 4


def test_inspect_names_the_formats_of_a_checkpoint(run: Run, tmp_path: Path) -> None:
    program = et.compile(MODEL, loss="cross_entropy", precision="bf16", minibatch=8)
    with et.Trainer(program, data="digits", out=tmp_path, verbose=False) as trainer:
        trainer.fit(steps=1, evaluate=False)
    (checkpoint,) = tmp_path.glob("*.ckpt")
    facts = json.loads(run("inspect", checkpoint, "--json")[1])
    assert facts["tensors"]["conv1.weight"]["dtype"] == "bf16"
    assert {item["dtype"] for item in facts["tensors"].values()} <= {"bf16", "float32"}
    assert re.search(r"conv1.weight +bf16 +\[", run("inspect", checkpoint)[1])


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--weight-decay", "0.3"], {"weight_decay": 0.3, "momentum": 0.0}),
        (["--dampening", "0.5", "--momentum", "0.1"], {"dampening": 0.5, "momentum": 0.1}),
        (["--lr", "0.2"], {"lr": 0.2, "momentum": 0.0}),
    ],
)
def test_parity_judges_the_optimizer_that_was_asked_for(
    run: Run, argv: list, expected: dict
) -> None:
    status, out, _ = run(
        "parity", MODEL, "--steps", 1, "--minibatch", 4, "--microbatch", 2, "--json", *argv
    )
    optimizer = json.loads(out)["optimizer"]
    assert status == 0 and {k: optimizer[k] for k in expected} == expected


def test_plan_says_the_bytes_that_keep_the_statistics_of_the_minibatch(run: Run) -> None:
    given = ("--minibatch", 32, "--momentum", 0.9)
    whole = json.loads(run("plan", MODEL, *given, "--microbatch", 32, "--json")[1])
    _, out, _ = run("plan", MODEL, *given, "--budget", whole["min_budget_nbytes"] - 1)
    (line,) = [line for line in out.splitlines() if line.startswith("batch-norm")]
    assert re.search(r"\b(8|16) of the 32\b", line), line
    (options,) = re.findall(r"--microbatch \d+ --budget \d+", line)
    assert options.split()[-1] == str(whole["min_budget_nbytes"])
    status, out, _ = run("plan", MODEL, *given, *options.split())
    assert status == 0 and "\nbatch-norm" not in out
    *others, least = options.split()
    assert run("plan", MODEL, *given, *others, int(least) - 1)[0] == 3
    held = run("plan", MODEL, *given, "--microbatch", 8, "--freeze-bn")[1]
    assert "\nbatch-norm" not in held


def test_parity_refuses_dampening_without_momentum(run: Run) -> None:
    assert run("parity", MODEL, "--dampening", "0.5")[0] == 2


def test_ops_lists_onnx_names(run: Run) -> None:
    status, out, _ = run("ops")
    assert status == 0 and {"Conv", "Gemm", "BatchNormalization"} <= set(out.split())
    assert json.loads(run("ops", "--json")[1])["ops"] == sorted(out.split())


def test_warm_compiles_beforehand(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, _ = run("warm", MODEL, "--json")
    facts = json.loads(out)
    assert status == 0 and facts["kernels"] > 10 and facts["planner_units"] >= 5
    assert run("warm")[0] == 2 and run("warm", MODEL, "--all")[0] == 2
    asked: list[object] = []
    monkeypatch.setattr(warm, "addresses", asked.extend)
    assert run("warm", "--all")[0] == 0 and len(asked) > 500


def test_plan_says_what_it_does_from_the_start(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.delenv("EDGETRAIN_PROGRESS")
    monkeypatch.setattr(waiting, "FIRST", 0.0)
    monkeypatch.setattr(waiting, "NEXT", 0.0)
    assert main(["plan", str(MODEL)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said and all(re.match(r" *\d+ s  \S", line) for line in said)


def test_doctor_says_what_is_here(run: Run) -> None:
    status, out, _ = run("doctor", "--json")
    facts = json.loads(out)
    assert status == 0 and facts["missing"] == [] and facts["packages"]["numba"]
    assert "cache" in run("doctor")[1]


def test_parity_of_the_demo_exits_0(run: Run) -> None:
    status, out, _ = run("parity", MODEL, "--steps", 1, "--json")
    assert (status, json.loads(out)["ok"]) == (0, True)
