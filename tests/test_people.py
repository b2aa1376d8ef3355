"""Everyday use: hints, display of data, early stopping by commands, the help."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import edgetrain as et
from edgetrain.cli import main
from edgetrain.cli.parser import help
from edgetrain.cli.parser.arguments import parse
from edgetrain.cli.parser.examples import EXAMPLES
from edgetrain.cli.parser.host_commands import command_parsers
from edgetrain.screen.progress import _Left, describe, duration
from edgetrain.units.hints import meant
from tests.digits_runs import MODEL
from tests.quick import slow_except

SLIPS = [
    (["train", "m.onnx", "--data", "digits", "--epochs", "1", "--batch-size", "3"], "--minibatch"),
    (["train", "m.onnx", "--data", "digits", "--epochs", "1", "--learning-rate", "3"], "--lr"),
    (["train", "m.onnx", "--data", "digits", "--epochs", "1", "--optimiser", "sgd"], "--optimizer"),
    (["plan", "m.onnx", "--memory=3MB"], "--budget"),
    (["plan", "m.onnx", "--minibach", "3"], "--minibatch"),
    (["trian"], "train"),
]


@pytest.mark.parametrize(("argv", "wanted"), SLIPS)
def test_slips_get_a_question(argv: list[str], wanted: str, capsys) -> None:
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert f"Did you mean {wanted}?" in err and err.count("\n") == 1


def test_slips_in_python_get_a_question() -> None:
    with pytest.raises(et.UsageError, match="batch_size: .* Did you mean minibatch"):
        et.compile(MODEL, batch_size=3)
    assert meant("--zzz", ["--lr"]) == ""


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_examples_that_parse(command: str, capsys) -> None:
    """A single example with --help, all of them with --help-all."""
    parsers = command_parsers()
    assert {*EXAMPLES} == {*parsers}
    assert main([command, "--help"]) == 0
    assert EXAMPLES[command][0] in capsys.readouterr().out
    assert main([command, "--help-all"]) == 0
    text = capsys.readouterr().out
    for line in EXAMPLES[command]:
        assert line in text
        words = line.partition("edgetrain ")[2].partition(">")[0].strip(' )"').replace("'", "")
        assert main([*words.split(), "--help"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_fits_a_screen_and_help_all_has_every_option(
    command: str, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    actions = command_parsers()[command]._actions
    assert main([command, "--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 45
    assert main([command, "--help-all"]) == 0
    text = capsys.readouterr().out
    flags = [action.option_strings[-1] for action in actions if action.option_strings]
    hidden = ["--target"] if command in ("eval", "data") else []
    assert [flag for flag in flags if not re.search(rf"{flag}(?![-\w])", text)] == hidden
    untold = [flag for action in actions if not action.help for flag in action.option_strings]
    assert untold == []


def test_help_groups_name_options_that_are_there_once() -> None:
    names = [name for group in help.GROUPS.values() for name in group]
    repeated = {name for name in names if names.count(name) > 1}
    assert repeated <= {"weight_decay", "momentum", "loss", "optimizer", "lr_schedule"}
    known = {action.dest for parser in command_parsers().values() for action in parser._actions}
    assert {*names} <= known
    assert known <= {*names, "size"}


def test_an_input_after_target_is_taken_and_the_new_name_said(capsys) -> None:
    argv = ["train", "m.onnx", "--data", "digits", "--steps", "3", "--target"]
    found = parse([*argv, "x"])
    assert not isinstance(found, int) and found.target_input == "x" and "target" not in found
    assert "--target-input x" in capsys.readouterr().err
    for name in ("cortex-m7", "host"):
        found = parse([*argv, name])
        assert not isinstance(found, int) and (found.target, found.target_input) == (name, None)
    assert parse([*argv, "cortex-m8"]) == 2
    assert "cortex-m7" in capsys.readouterr().err
    assert not isinstance(parse([*argv[:-1], "--target-input", "x"]), int)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("shell", slow_except(["bash", "zsh", "fish"], "zsh"))
def test_completion_knows_commands_and_options(shell: str, capsys) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("bundle", "minibatch", "cross_entropy", "save-seconds"))


def test_completion_of_bash_completes(capsys) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    ask = (
        "COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _edgetrain; "
        'echo "${{COMPREPLY[@]}}"'
    )

    def completed(words: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", f"{script}\n{ask.format(words)}"], capture_output=True, text=True
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
        return done.stdout.split()

    assert completed("edgetrain tr") == ["train"]
    assert completed("edgetrain train --keep-b") == ["--keep-best"]
    assert completed("edgetrain plan --precision fp3") == ["fp32"]


def test_data_shows_what_a_source_holds(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{k},{k % 3},{'red' if k % 3 else 'blue'},{k}" for k in range(12)]
    Path("c.csv").write_text("\n".join(["a,b,kind,d", *rows]))
    assert main(["data", "csv:c.csv", "--label", "kind", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["splits"] == {"train": 12} and found["labels"] == ["blue", "red"]
    assert found["counts"] == [4, 8] and found["fields"]["x"]["max"] == 11
    assert main(["data", "csv:c.csv", "--label", "kind"]) == 0
    assert "2 classes: blue 4, red 8" in capsys.readouterr().out
    assert main(["data", "digits", str(MODEL)]) == 0
    assert "data fits" in capsys.readouterr().out
    assert main(["data", "csv:c.csv", str(MODEL), "--label", "kind"]) == 4
    shown = capsys.readouterr()
    assert "not fit" in shown.out and "the model expects [1, 8, 8]" in shown.err


def test_early_stopping_and_the_best_by_commands(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ["train", str(MODEL), "--data", "digits", "--minibatch", "16", "--microbatch", "8"]
    stop = ["--patience", "2", "--keep-best", "--monitor", "accuracy", "--metrics", "f1"]
    # a rate at which nothing improves, and no running statistics that change
    length = ["--lr", "1e-9", "--epochs", "9", "--threads", "1", "--freeze-bn"]
    assert main([*argv, *stop, *length, "--out", "run"]) == 0
    err = capsys.readouterr().err
    assert "stopped at step 267: accuracy has not improved for 2 epochs" in err and "f1" in err
    assert main(["eval", "run", "--data", "digits", "--best", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 360
    assert main(["export", "run", "--best", "-o", "best.onnx"]) == 0
    assert main([*argv, "--epochs", "1", "--monitor", "loss"]) == 2
    assert "--monitor" in capsys.readouterr().err
    Path("run/best.ckpt").unlink()
    assert main(["export", "run", "--best", "-o", "best.onnx"]) == 4
    assert "--keep-best" in capsys.readouterr().err


def test_a_run_says_what_its_checkpoints_write(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ["train", str(MODEL), "--data", "digits", "--steps", "4", "--save-steps", "2"]
    plan = ["--minibatch", "16", "--microbatch", "8", "--threads", "1", "--no-eval"]
    assert main([*argv, *plan, "--out", "run"]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("checkpoints"))
    words = line.replace(",", "").split()
    each = int(words[1])
    found = Path("run/step-00000004.ckpt").stat().st_size
    assert each <= found < each + 8192


def test_plan_says_how_long_and_at_most_twelve_rows(capsys) -> None:
    assert main(["plan", str(MODEL), "--minibatch", "16"]) == 0
    out = capsys.readouterr().out
    rows = re.split(r"\n\S.*plans .*\n", out)[1].splitlines()[1:]
    assert "ms per minibatch" in out and 0 < len(rows) <= 12


def test_one_output_is_told_of_bce(tmp_path: Path, capsys) -> None:
    from tests.runtime.models import write_rows

    path = write_rows(tmp_path / "one.onnx", classes=1)
    assert main(["plan", str(path)]) == 2
    assert "bce_with_logits" in capsys.readouterr().err


def test_time_left_is_what_the_steps_took(monkeypatch) -> None:
    now = iter([0.0, 10.0, 20.0, 30.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    left = _Left()
    event = {"event": "step", "total_steps": 40}
    assert left.after(event | {"step": 1}) is None
    assert left.after(event | {"step": 11}) == pytest.approx(29)
    assert left.after({"event": "epoch", "step": 21}) == pytest.approx(19)
    assert left.after(event | {"step": 40}) is None
    assert [duration(s) for s in (5, 300, 9000)] == ["5 s", "5 min", "2.5 h"]
    epoch = {
        "event": "epoch",
        "epoch": 1,
        "loss": 0.5,
        "seconds": 1,
        "samples_per_second": 9,
        "skipped": 0,
    }
    assert describe(epoch | {"left": 300.0}).endswith(", 5 min left")


def test_where_options_belong_is_said() -> None:
    for name, value, wanted in (
        ("lr", 0.1, "optimizer=et.SGD"), ("momentum", 0.9, "optimizer=et.SGD"),
        ("label_smoothing", 0.1, "loss=et.Loss"), ("epochs", 3, "Trainer"),
    ):  # fmt: skip
        with pytest.raises(et.UsageError, match=wanted):
            et.compile(MODEL, **{name: value})


@pytest.mark.parametrize("call", [
    lambda: et.forward(MODEL, 3),
    lambda: et.forward(MODEL, {}),
    lambda: et.forward(MODEL, {"x": "text"}),
    lambda: et.loss_and_gradients(MODEL, {"x": 5}, [0]),
    lambda: et.loss_and_gradients(MODEL, np.zeros((2, 1, 8, 8)), "ab"),
    lambda: et.compile(MODEL, minibatch="many"),
    lambda: et.compile(MODEL, loss=3),
    lambda: et.compile(MODEL, optimizer=et.SGD),
    lambda: et.compile(MODEL, budget="much"),
    lambda: et.Schedule("cosin"),
])  # fmt: skip
def test_wrong_arguments_are_one_line(call) -> None:
    with pytest.raises(et.EdgetrainError) as found:
        call()
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    slow_except([("sgd", "0.01"), ("adamw", "3e-4"), ("lion", "1e-4")], ("adamw", "3e-4")),
)
def test_a_transformer_that_diverges_is_told_of_rates(
    tmp_path: Path, monkeypatch, capsys, optimizer: str, rate: str
) -> None:
    from edgetrain.exporters import export_torch

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = torch.nn.Sequential(layer, torch.nn.Flatten(), torch.nn.Linear(40, 3))
    export_torch(net, (torch.zeros(2, 5, 8),), "net.onnx")
    x = np.random.default_rng(0).standard_normal((32, 5, 8)).astype(np.float32)
    np.savez("own.npz", x=x, y=np.arange(32) % 3)
    argv = ["train", "net.onnx", "--data", "npz:own.npz", "--minibatch", "8", "--microbatch", "8"]
    length = ["--steps", "200", "--threads", "1", "--optimizer", optimizer, "--lr", "1e30"]
    assert main([*argv, *length]) == 1
    err = capsys.readouterr().err
    hint = f"transformers: --lr {rate} --lr-schedule cosine --warmup-steps 100 --max-grad-norm 1"
    assert "lower the learning rate" in err and hint in err and err.count("error") == 1
    sane = ["--steps", "4", "--threads", "1", "--optimizer", optimizer, "--lr", rate]
    assert main([*argv, *sane]) == 0  # the advised command runs


def test_other_models_that_diverge_are_not_told_of_transformers(capsys) -> None:
    argv = ["train", str(MODEL), "--data", "digits", "--minibatch", "16", "--microbatch", "8"]
    assert main([*argv, "--steps", "60", "--threads", "1", "--lr", "1e30"]) == 1
    err = capsys.readouterr().err
    assert "lower the learning rate" in err and "transformers" not in err
