"""Every option that is accepted does something, or is refused; the Python face refuses as well."""

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.cli import main
from edgetrain.cli.parser import arguments, host_commands
from edgetrain.cli.parser.choices import compile_arguments
from edgetrain.cli.parser.help import GROUPS, text
from edgetrain.cli.parser.namespace import Namespace
from edgetrain.cli.parser.plan_options import plan_table
from edgetrain.cli.parser.plugins import owners
from edgetrain.compiler import Options
from edgetrain.data.registry import open_data
from edgetrain.errors import UsageError
from edgetrain.losses import LOSSES, Loss
from edgetrain.optim import OPTIMIZERS, SCHEDULES, Optimizer
from edgetrain.options.declared import OPTIONS
from edgetrain.runtime.run.checkpoint import latest
from edgetrain.runtime.training.settings import Settings
from edgetrain.units.options import NEEDS, flag
from edgetrain.units.plugin import Plugin
from tests.digits_runs import MODEL
from tests.quick import slow_between
from tools import keywords

# Option of the compiler -> (what is given, what else it takes to mean anything). The options that
# are compiled, and so everything after them, must differ from those without it.
COMPILED: dict[str, tuple[list[str], list[str]]] = {
    "budget": (["1MB"], []),
    "minibatch": (["16"], []),
    "microbatch": (["8"], []),
    "precision": (["fp16"], []),
    "model_memory": (["int8"], []),
    "weights": (["int8"], []),
    "state": (["int8"], ["--momentum", "0.5"]),
    "grads": (["int8"], []),
    "saved": (["int8"], []),
    "density": (["0.5"], []),
    "density_override": (["conv2.*=0.5"], []),
    "distribution": (["erk"], ["--density", "0.5"]),
    "rewiring": (["set"], ["--density", "0.5"]),
    "optimizer": (["adam"], []),
    "lr": (["0.5"], ["--optimizer", "sgd"]),
    "momentum": (["0.5"], []),
    "dampening": (["0.5"], ["--momentum", "0.5"]),
    "nesterov": ([], ["--momentum", "0.5"]),
    "beta1": (["0.5"], ["--optimizer", "adam"]),
    "beta2": (["0.5"], ["--optimizer", "adamw"]),
    "eps": (["0.5"], ["--optimizer", "adam"]),
    "weight_decay": (["0.5"], ["--optimizer", "sgd"]),
    "alpha": (["0.5"], ["--optimizer", "rmsprop"]),
    "centered": ([], ["--optimizer", "rmsprop"]),
    "lr_decay": (["0.5"], ["--optimizer", "adagrad"]),
    "beta2_decay": (["-0.5"], ["--optimizer", "adafactor"]),
    "eps1": (["0.5"], ["--optimizer", "adafactor"]),
    "eps2": (["0.5"], ["--optimizer", "adafactor"]),
    "clip": (["1.5"], ["--optimizer", "adafactor"]),
    "loss": (["mse"], []),
    "label_smoothing": (["0.1"], []),
    "ignore_index": (["3"], []),
    "class_axis": (["1"], []),
    "class_weights": (["1,0.5"], []),
    "sample_weights": ([], []),
    "pos_weight": (["2"], ["--loss", "bce_with_logits"]),
    "quantiles": (["0.1"], ["--loss", "quantile"]),
    "focal_alpha": (["0.5"], ["--loss", "focal"]),
    "focal_gamma": (["1"], ["--loss", "focal"]),
    "delta": (["0.5"], ["--loss", "huber"]),
    "margin": (["0.5"], ["--loss", "triplet"]),
    "swap": ([], ["--loss", "triplet"]),
    "temperature": (["0.5"], ["--loss", "info_nce"]),
    "all_pairs": ([], ["--loss", "info_nce"]),
    "dice_smooth": (["0.5"], ["--loss", "dice"]),
    "multilabel": ([], ["--loss", "dice"]),
    "blank": (["3"], ["--loss", "ctc"]),
    "label_length": (["3"], ["--loss", "ctc"]),
    "input_lengths": ([], ["--loss", "ctc"]),
    "label_sum": ([], ["--loss", "ctc"]),
    "zero_infinity": ([], ["--loss", "ctc"]),
    "max_grad_norm": (["1"], []),
    "fused_update": ([], []),
    "loss_scale": (["64"], []),
    "max_extra_forward": (["1"], []),
    "convolutions": (["direct"], []),
    "arithmetic": (["separate"], []),
    "effort": (["thorough"], []),
    "threads": (["1"], []),
    "seed": (["7"], []),
    "dim": (["T=4"], []),
    "lengths": (["32,64"], []),
    "tokens": (["512"], ["--lengths", "32,64"]),
    "batch_axis": (["x=1"], []),
    "input": (["sr=16000"], []),
    "segments": (["off"], []),
    "bptt": (["20"], []),
    "train": (["conv*"], []),
    "freeze": (["conv*"], []),
    "freeze_bn": ([], []),
    "train_constants": (["*"], []),
    "allow_constants": ([], []),
    "output": (["logits"], []),
    "allow": (["slices"], []),
    "target": (["cortex-m7"], []),
    "lora": (["r=2,targets=fc*"], []),
    "new_head": (["12"], []),
    "no_decay_1d": ([], ["--weight-decay", "0.1"]),
    "frozen": (["int4"], []),
    "quantized": (["float"], []),
}
for _name, _kind in OPTIMIZERS.items():
    for _field in dataclasses.fields(_kind):
        COMPILED.setdefault(_field.name, (["0.5"], ["--optimizer", _name]))
PLATEAU = ["--lr-schedule", "plateau", "--steps", "6"]
DROPPING = [*PLATEAU, "--lr-window", "1", "--lr-patience", "0", "--lr-threshold", "1"]
# Options beside the compiler's: (command, option) -> arguments of two runs that differ.
DIFFERS: dict[tuple[str, str], tuple[list[str], list[str]]] = {
    ("train", "epochs"): (["--epochs", "0.05"], ["--steps", "2"]),
    ("train", "steps"): (["--steps", "3"], ["--steps", "2"]),
    ("train", "lr"): (["--lr", "0.01"], []),
    ("train", "lr_schedule"): (["--lr-schedule", "cosine"], []),
    ("train", "warmup_steps"): (["--warmup-steps", "2"], []),
    ("train", "lr_step_size"): (
        ["--lr-schedule", "step", "--lr-step-size", "1"],
        ["--lr-schedule", "step", "--lr-step-size", "2"],
    ),
    ("train", "lr_gamma"): (
        ["--lr-schedule", "step", "--lr-step-size", "1", "--lr-gamma", "0.5"],
        ["--lr-schedule", "step", "--lr-step-size", "1"],
    ),
    ("train", "lr_milestones"): (
        ["--lr-schedule", "multistep", "--lr-milestones", "1"],
        ["--lr-schedule", "multistep", "--lr-milestones", "2"],
    ),
    ("train", "lr_timescale"): (
        ["--lr-schedule", "inverse_sqrt", "--lr-timescale", "1"],
        ["--lr-schedule", "inverse_sqrt"],
    ),
    ("train", "lr_pct_start"): (
        ["--lr-schedule", "one_cycle", "--lr-pct-start", "0.9"],
        ["--lr-schedule", "one_cycle"],
    ),
    ("train", "lr_div_factor"): (
        ["--lr-schedule", "one_cycle", "--lr-div-factor", "2"],
        ["--lr-schedule", "one_cycle"],
    ),
    ("train", "lr_final_div_factor"): (
        ["--lr-schedule", "one_cycle", "--lr-final-div-factor", "2"],
        ["--lr-schedule", "one_cycle"],
    ),
    ("train", "lr_power"): (
        ["--lr-schedule", "polynomial", "--lr-power", "2"],
        ["--lr-schedule", "polynomial"],
    ),
    ("train", "lr_end"): (
        ["--lr-schedule", "polynomial", "--lr-end", "0.5"],
        ["--lr-schedule", "polynomial"],
    ),
    ("train", "lr_window"): (
        [*PLATEAU, "--lr-window", "1", "--lr-patience", "0"],
        [*PLATEAU, "--lr-patience", "0"],
    ),
    ("train", "lr_patience"): (
        [*PLATEAU, "--lr-window", "1", "--lr-patience", "0"],
        [*PLATEAU, "--lr-window", "1"],
    ),
    ("train", "lr_threshold"): ([*DROPPING, "--lr-threshold", "0"], DROPPING),
    ("train", "lr_cooldown"): ([*DROPPING, "--lr-cooldown", "9"], DROPPING),
    ("train", "min_lr"): ([*DROPPING, "--min-lr", "0.09"], DROPPING),
    ("train", "save_steps"): (["--save-steps", "1"], []),
    ("train", "save_total_limit"): (
        ["--steps", "4", "--save-steps", "1", "--save-total-limit", "3"],
        ["--steps", "4", "--save-steps", "1"],
    ),
    ("train", "no_eval"): (["--no-eval"], []),
    ("train", "save_seconds"): (["--save-seconds", "1e-6"], []),
    ("train", "keep_last"): (["--epochs", "1", "--keep-last"], ["--epochs", "1"]),
    ("train", "augment"): (["--augment", "noise=0.5"], []),
    ("train", "balance_classes"): (["--balance-classes"], []),
    ("train", "keep_best"): (["--keep-best"], []),
    ("eval", "metrics"): (["--metrics", "confusion"], []),
    ("data", "json"): (["--json"], []),
    ("train", "json"): (["--json"], []),
    ("train", "out"): (["--out", "elsewhere"], []),
    ("eval", "split"): (["--split", "train"], []),
    ("eval", "threads"): (["--threads", "9"], []),  # refused: the plan is for two
    ("eval", "json"): (["--json"], []),
    ("inspect", "json"): (["--json"], []),
    ("ops", "json"): (["--json"], []),
}
# (command, option) -> the test in which it does something.
ELSEWHERE = {
    ("find-lr", "start_lr"): "tests.runtime.test_rate_finder.test_find_lr_is_a_command",
    ("find-lr", "end_lr"): "tests.runtime.test_rate_finder.test_find_lr_is_a_command",
    ("find-lr", "steps"): "tests.runtime.test_rate_finder.test_find_lr_is_a_command",
    ("find-lr", "picture"): "tests.runtime.test_rate_finder.test_find_lr_is_a_command",
    ("find-lr", "json"): "tests.runtime.test_rate_finder.test_find_lr_is_a_command",
    ("find-lr", "label"): "tests.runtime.test_rate_finder.test_find_lr_is_a_command",
    ("find-lr", "target_input"): "tests.runtime.test_rate_finder.test_find_lr_is_a_command",
    ("demo", "budget"): "tests.test_demo.test_demo_command_shows_account_progress_and_accuracy",
    ("demo", "epochs"): "tests.test_demo.test_demo_command_shows_account_progress_and_accuracy",
    ("demo", "out"): "tests.test_demo.test_demo_command_shows_account_progress_and_accuracy",
    ("demo", "json"): "tests.test_demo.test_demo_command_shows_account_progress_and_accuracy",
    ("inspect", "verify"): "tests.checker.test_files.test_a_file_is_proved_against_its_own_model",
    ("plan", "picture"): "tests.test_cli.test_plan_draws_the_arena",
    ("plan", "moving"): "tests.test_cli.test_plan_draws_the_arena",
    ("plan", "explain"): "tests.test_cli.test_plan_explains_the_choice_and_draws_the_frontier",
    ("advise", "all"): "tests.test_advise.test_advice_is_a_table_and_commands",
    ("advise", "json"): "tests.test_advise.test_every_command_does_what_its_row_says",
    ("plan", "report"): "tests.report.test_reports.test_plan_report_hatches_what_is_computed_again",
    ("train", "report"): "tests.report.test_reports.test_train_report_has_curves_and_confusion",
    ("plan", "pareto"): "tests.test_cli.test_plan_explains_the_choice_and_draws_the_frontier",
    ("plan", "calibrate"): "tests.test_cli.test_plan_calibrates_this_machine",
    ("plan", "prove"): "tests.compiler.test_prove.test_prove_prints_bounds_and_gaps",
    ("migrate", "json"): "tests.upgrades.test_upgrades.test_migrate_takes_the_model_it_is_given",
    ("migrate", "out"): "tests.upgrades.test_upgrades.test_migrate_takes_the_model_it_is_given",
    ("migrate", "budget"): "tests.upgrades.test_upgrades.test_migrate_plans_for_another_budget",
    ("bundle", "json"): "tests.bundle.test_files.test_bundle_is_a_command",
    ("bundle", "size"): "tests.bundle.test_files.test_bundle_is_a_command",
    ("bundle", "name"): "tests.bundle.test_files.test_bundle_is_a_command",
    ("bundle", "data"): "tests.bundle.test_files.test_samples_of_bytes_stay_bytes",
    (
        "bundle",
        "cc",
    ): "tests.bundle.test_files.test_what_cannot_be_is_refused_before_anything_is_written",
    ("bundle", "length"): "tests.bundle.test_files.test_a_bundle_has_the_length_that_is_chosen",
    ("serve", "length"): "tests.bundle.test_files.test_a_bundle_has_the_length_that_is_chosen",
    ("bundle", "label"): "tests.bundle.test_files.test_bundle_is_a_command",
    ("serve", "label"): "tests.bundle.test_serve.test_a_page_is_served_until_it_is_interrupted",
    ("serve", "data"): "tests.bundle.test_serve.test_a_page_is_served_until_it_is_interrupted",
    ("serve", "host"): "tests.bundle.test_serve.test_an_address_that_cannot_be_used_is_refused",
    ("serve", "port"): "tests.bundle.test_serve.test_an_address_that_cannot_be_used_is_refused",
    ("serve", "open"): "tests.bundle.test_serve.test_open_opens_a_browser",
    ("plan", "dump"): "tests.compiler.test_dump.test_every_pass_leaves_its_graph",
    ("plan", "dump_diff"): "tests.compiler.test_dump.test_every_pass_leaves_its_graph",
    ("compile", "dump"): "tests.compiler.test_dump.test_every_pass_leaves_its_graph",
    ("compile", "dump_diff"): "tests.compiler.test_dump.test_every_pass_leaves_its_graph",
    ("plan", "json"): "tests.test_cli.test_plan_json_has_the_promised_keys_and_adds_up",
    ("compile", "json"): "tests.test_cli.test_compile_writes_a_program",
    ("train", "resume"): "tests.test_cli.test_resume_goes_on_and_refuses_another_recipe",
    ("warm", "json"): "tests.test_cli.test_warm_compiles_beforehand",
    ("warm", "all"): "tests.test_cli.test_warm_compiles_beforehand",
    ("train", "metrics"): "tests.test_people.test_early_stopping_and_the_best_by_commands",
    ("train", "patience"): "tests.test_people.test_early_stopping_and_the_best_by_commands",
    ("train", "monitor"): "tests.test_people.test_early_stopping_and_the_best_by_commands",
    ("eval", "best"): "tests.test_people.test_early_stopping_and_the_best_by_commands",
    ("export", "best"): "tests.test_people.test_early_stopping_and_the_best_by_commands",
    ("train", "target_input"): "tests.data.test_labels.test_an_autoencoder_trains_by_a_command",
    ("eval", "target_input"): "tests.data.test_labels.test_an_autoencoder_trains_by_a_command",
    ("data", "target_input"): "tests.data.test_labels.test_an_autoencoder_trains_by_a_command",
    ("data", "label"): "tests.test_people.test_data_shows_what_a_source_holds",
    ("doctor", "json"): "tests.test_cli.test_doctor_says_what_is_here",
    ("export", "json"): "tests.test_options.test_export_prints_json",
    ("train", "label"): "tests.test_options.test_label_chooses_a_column",
    ("eval", "label"): "tests.test_options.test_label_chooses_a_column",
    ("train", "validation"): "tests.runtime.test_data.test_commands_say_what_is_held_out",
    ("train", "verify_saves"): "tests.program.test_medium.test_a_run_ends_by_a_lost_write",
    ("parity", "reference"): "tests.test_options.test_options_of_parity_reach_it",
    ("parity", "device"): "tests.test_options.test_options_of_parity_reach_it",
    ("parity", "steps"): "tests.test_options.test_options_of_parity_reach_it",
    ("export", "adapter"): "tests.compiler.test_lora.test_export_command_writes_the_adapter",
    ("parity", "json"): "tests.test_cli.test_parity_of_the_demo_exits_0",
}
COMMON = {"help", "help_all", "debug"}  # of every command; test_cli and test_people have them


def commands() -> dict[str, argparse.ArgumentParser]:
    return dict(host_commands.command_parsers())


def options() -> Iterator[tuple[str, argparse.Action]]:
    """(command, option) of every option that may be left out."""
    for command, parser in commands().items():
        for action in parser._actions:
            if action.option_strings and not action.required:
                yield command, action


def test_every_option_of_every_command_is_shown_to_do_something() -> None:
    missing = [
        (command, action.dest)
        for command, action in options()
        if action.dest not in COMMON | COMPILED.keys()
        and (command, action.dest) not in DIFFERS.keys() | ELSEWHERE.keys()
    ]
    assert missing == []
    known = {(command, action.dest) for command, action in options()}
    assert DIFFERS.keys() | ELSEWHERE.keys() <= known
    assert COMPILED.keys() >= plan_table().keys()
    for name in ELSEWHERE.values():
        module, _, test = name.rpartition(".")
        assert hasattr(__import__(module, fromlist=[test]), test), name


def compiled(*argv: str) -> tuple[Any, dict[str, Any]]:
    """(budget, recipe) of what `compile` would be asked for."""
    found = arguments.parse(["compile", "m.onnx", "-o", "m.edge", *argv])
    assert isinstance(found, Namespace), argv
    given = compile_arguments(found)
    return given.pop("budget", None), make_options(**given).recipe()


@pytest.mark.parametrize("option", COMPILED)
def test_options_of_the_compiler_are_compiled_in(option: str) -> None:
    value, others = COMPILED[option]
    assert compiled(flag(option), *value, *others) != compiled(*others)


@pytest.mark.parametrize("option", sorted(NEEDS.keys() & COMPILED.keys()))
def test_options_without_the_one_they_need_are_refused(option: str, capsys) -> None:
    status = main(["plan", str(MODEL), flag(option), *COMPILED[option][0]])
    err = capsys.readouterr().err
    assert status == 2 and flag(option) in err and flag(NEEDS[option].option) in err, err


@pytest.mark.parametrize("family", [Loss, Optimizer])
def test_options_of_another_plugin_are_refused(family: type[Plugin], capsys) -> None:
    for option, members in owners(family).items():
        for name in family.kinds.keys() - members.keys():
            given = [flag(family.choice), name, flag(option), *COMPILED[option][0]]
            status, err = main(["plan", str(MODEL), *given]), capsys.readouterr().err
            assert status == 2 and err.count("\n") == 1, err
            assert flag(option) in err and f"{flag(family.choice)} {next(iter(members))}" in err


def test_an_optimizer_that_sums_over_weights_is_refused_for_fused_updates(capsys) -> None:
    argv = ["plan", str(MODEL), "--optimizer", "lamb", "--fused-update", "--microbatch", "16"]
    assert main([*argv, "--minibatch", "16"]) == 2
    error = capsys.readouterr().err
    assert "fused_update" in error and "optimizer lamb" in error


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--lr-gamma", "0.5"], "--lr-schedule step"),
        (["--lr-gamma", "0.1"], "--lr-schedule step"),  # what it would be anyway
        (["--lr-step-size", "3"], "--lr-schedule step"),
        (["--lr-schedule", "cosine", "--lr-step-size", "3"], "--lr-schedule step"),
        (["--label", "y"], "--data csv:FILE"),
        (["--density", "1", "--rewiring", "dsr"], "--density below 1"),
        (["--density-override", "*=1", "--rewiring", "set"], "--density below 1"),
        (["--max-extra-forward", "-0.5"], "at least 0"),
        (["--max-extra-forward", "nan"], "finite"),
        (["--dim", "T=4"], "dim T=4"),
        (["--dim", "batch=4"], "dim batch=4"),
        (["--batch-axis", "h=1"], "batch axis h=1"),
        (["--batch-axis", "x=4"], "expected an axis from 0 to 3"),
        (["--batch-axis", "x=-1"], "expected INPUT=AXIS"),
        (["--batch-axis", "x"], "expected INPUT=AXIS"),
        (["--save-steps", "-1"], "at least 0"),
        (["--save-total-limit", "0"], "at least 1"),
    ],
)
def test_options_that_would_change_nothing_are_refused_before_anything_is_written(
    argv: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    base = ["train", str(MODEL), "--data", "digits", "--steps", "1", "--out", str(out)]
    status, err = main([*base, *argv]), capsys.readouterr().err
    assert status == 2 and words in err and err.count("\n") == 1 and not out.exists(), err


@pytest.mark.parametrize("length", [["--steps", "0"], ["--epochs", "nan"], ["--epochs", "-1"]])
def test_runs_of_no_length_are_refused(length: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["train", str(MODEL), "--data", "digits", *length, "--out", str(out)]) == 2
    assert not out.exists()


def test_asking_for_no_rewiring_is_not_refused() -> None:
    assert compiled("--rewiring", "none") == compiled()
    assert make_options(rewiring=None).rewiring is None


@pytest.fixture
def seen(
    tmp_path: Path, digits_edge: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> Callable[[str, list[str]], Any]:
    """What a command leaves: status, files, words printed, weights."""
    number = iter(range(100))

    def run(command: str, argv: list[str]) -> Any:
        folder = tmp_path / str(next(number))
        folder.mkdir()
        monkeypatch.chdir(folder)
        base = {
            "train": ["train", str(digits_edge), "--data", "digits"],
            "eval": ["eval", str(digits_edge), "--data", "digits"],
            "inspect": ["inspect", str(MODEL)],
            "data": ["data", "digits"],
        }.get(command, [command])
        if command == "train" and not {"--steps", "--epochs"} & set(argv):
            argv = [*argv, "--steps", "2"]
        status, out = main([*base, *argv]), capsys.readouterr()
        files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))
        loaded = latest(folder / "runs" / "digits-1")
        state = loaded and {name: a.tobytes() for name, a in loaded.tensors.items()}
        printed = [out.out[:1] == "{", "test loss" in out.err, "samples" in out.out and out.out]
        return status, files, printed, state

    return run


@pytest.mark.parametrize(("command", "option"), slow_between(DIFFERS, 2))
def test_options_make_a_run_differ(command: str, option: str, seen) -> None:
    given, base = DIFFERS[command, option]
    assert seen(command, given) != seen(command, base)


def test_export_prints_json(
    seen, digits_edge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["train", str(digits_edge), "--data", "digits", "--steps", "1", "--no-eval",
                 "--out", str(run)]) == 0  # fmt: skip
    capsys.readouterr()
    assert main(["export", str(run), "-o", str(tmp_path / "t.onnx"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nbytes"] > 10_000


def test_label_chooses_a_column(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n" + "1,0,5\n" * 20)
    rows = {}
    for label in ("b", "c"):
        y = np.zeros(1, np.int64)
        open_data(f"csv:{table}", label=label).fill(np.array([0]), {"y": y})
        rows[label] = int(y[0])
    assert rows == {"b": 0, "c": 5}
    for spec in ("digits", (np.zeros((4, 2)), np.zeros(4))):
        with pytest.raises(UsageError, match="--label.*csv"):
            open_data(spec, label="y")


def test_options_of_parity_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgetrain.exporters import parity

    asked: list[dict[str, Any]] = []

    class Report:
        ok = True

        def print(self) -> None:
            pass

    monkeypatch.setattr(parity, "parity", lambda model, **given: asked.append(given) or Report())
    taken = {a.dest for c, a in options() if c == "parity"} - COMMON - {"json"}
    own = {
        "device": (["cuda"], []),
        "reference": (["fp32"], []),
        "steps": (["2"], []),
        "batch": (["4"], []),
    }
    for option in sorted(taken):
        value, others = (COMPILED | own)[option]
        for argv in ([*others, flag(option), *value], others):
            assert main(["parity", str(MODEL), *argv]) == 0, argv
        assert asked[-2] != asked[-1], option


# Options of every kind that a declaration knows, declared before anything else is imported. Each:
# declaration, words on the command line, value in Python, one that is refused.
DECLARING = """
import inspect, json
from edgetrain.options import option
from edgetrain.options.declared import OPTIONS

ADDED = {
    "shade": (option(3, "darkness in percent", "P", least=0, most=100, type="int"), "7", 7, 101),
    "tint": (option(None, "hue", "T", above=0, type="float | None"), "0.5", 0.5, 0),
    "hue": (option("red", "darkness", "H", choices=("red", "blue"), type="str"), "blue", "blue", 1),
    "dye": (option({}, "darkness by name: {}", "N=P", flag="one_dye", cli="a=1", least=1,
                   type="Mapping[str, int]"), "a=2", {"a": 2}, {"a": 0}),
    "dull": (option(False, "no shine", type="bool"), None, True, "no"),
    "spots": (option((), "darkness of spots", "S", type="tuple[str, ...]"), "x", ("x",), "x"),
}
for name, (one, *_) in ADDED.items():
    OPTIONS[name], one.name, one.group, one.new = one, name, "model", True

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.cli.parser.arguments import _plainly, parse
from edgetrain.cli.parser.choices import compile_arguments
from edgetrain.cli.parser.help import GROUPS, text
from edgetrain.cli.parser.host_commands import parser_for
from edgetrain.compiler import Options
from edgetrain.errors import UsageError
from edgetrain.options.texts import about, table
from edgetrain.program.fields import check_recipe
from edgetrain.program.schema import Wrong
from tools.keywords import of_compile

def refused(kind, call):
    try:
        call()
    except kind as error:
        return str(error)

rows = list(table(OPTIONS.values()))
plain = json.loads(json.dumps(make_options().recipe())) | {"sparse_layers": []}
for name, (_, typed, value, wrong) in ADDED.items():
    flag = "--" + OPTIONS[name].dest.replace("_", "-")
    words = [flag] if typed is None else [flag, typed]
    start = ["train", "m.onnx", "--data", "digits", "--steps", "1", *words]
    for found in (_plainly(start), parse(["compile", "m.onnx", "-o", "m.edge", *words])):
        assert getattr(make_options(**compile_arguments(found)), name) == value, name
    recipe = json.loads(json.dumps(make_options(**{name: value}).recipe()))
    assert name in recipe and name not in plain
    check_recipe(recipe | {"sparse_layers": []}, "recipe")
    assert getattr(Options.of_recipe(recipe), name) == value
    assert f"recipe.{name}" in refused(Wrong, lambda: check_recipe(plain | {name: wrong}, "recipe"))
    assert name in refused(UsageError, lambda: make_options(**{name: wrong}))
    assert f"    {name}: {OPTIONS[name].type}\\n" in of_compile()
    assert name in inspect.signature(et.compile).parameters
    assert f"{name}: {about(OPTIONS[name])}" in inspect.getdoc(et.compile)
    assert any(f"`{name}`" in row and flag in row for row in rows)
    assert flag in text(parser_for("plan")[1]["plan"], "plan", everything=True)
"""


def test_an_option_is_declared_once_and_then_everywhere() -> None:
    done = subprocess.run([sys.executable, "-c", DECLARING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_keywords_are_written_from_the_declarations() -> None:
    for path, made in keywords.FILES.items():
        assert path.read_text() == made(), "python -m tools.keywords"


def test_declared_options_are_shown_in_a_group_of_help() -> None:
    shown = text(commands()["plan"], "plan", everything=True)
    for option in OPTIONS.values():
        assert option.text and option.group in GROUPS, option.name
        assert (flag(option.dest) in shown) or option.flag is None, option.name


# The Python face.

OWNERS = [Options, *LOSSES.values(), *SCHEDULES.values(), *OPTIMIZERS.values()]


class Wrong:
    """Of no type that an option takes."""

    def __repr__(self) -> str:
        return "Wrong"


@pytest.mark.parametrize("owner", OWNERS)
def test_options_of_a_wrong_type_are_refused_by_name(owner: type) -> None:
    for field in dataclasses.fields(owner):
        for wrong in (Wrong(), [None]):
            with pytest.raises(UsageError, match=field.name):
                owner(**{field.name: wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"minibatch": 10.0}, {"minibatch": "10"}, {"minibatch": True}, {"microbatch": 8.0},
        {"max_extra_forward": "x"}, {"max_extra_forward": float("nan")}, {"threads": 1.0},
        {"seed": 1.5}, {"seed": None}, {"max_grad_norm": "1"}, {"max_grad_norm": float("inf")},
        {"density": "0.5"}, {"density_overrides": {"*": "0.5"}}, {"train": "conv*"},
        {"freeze": [1]}, {"dims": {"T": 4.0}}, {"dims": ["T=4"]}, {"output": 3}, {"loss": 1},
        {"optimizer": None}, {"precision": 16}, {"rewiring": "set"}, {"rewiring": "dsr"},
        {"distribution": "erk"}, {"distribution": "uniform"}, {"budgets": 4},
        {"density": 1.0, "density_overrides": {"*": 1.0}, "rewiring": "set"},
    ],
    ids=str,
)  # fmt: skip
def test_compile_refuses_options_of_a_wrong_type_or_without_effect(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="|".join(name.split("_o")[0] for name in wrong)):
        make_options(**wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: et.SGD(nesterov=True), lambda: et.SGD(dampening=0.5), lambda: et.SGD(lr="0.1"),
        lambda: et.SGD(momentum=0.9, nesterov=1), lambda: et.Loss("mse", label_smoothing=0.1),
        lambda: et.Loss("mse", ignore_index=3), lambda: et.Loss("mse", class_axis=1),
        lambda: et.Schedule(step_size=5), lambda: et.Schedule("cosine", gamma=0.5),
        lambda: et.Schedule(warmup_steps=2.0), lambda: et.Adam(lr=float("inf")),
    ],
)  # fmt: skip
def test_options_without_effect_are_refused_where_they_are_made(make) -> None:
    with pytest.raises(UsageError):
        make()


def test_options_of_others_are_taken_where_they_ask_for_nothing() -> None:
    assert et.Loss("mse", ignore_index=-100) == et.Loss("mse")
    assert et.Schedule("cosine", gamma=0.1) == et.Schedule("cosine")


def test_numbers_of_numpy_become_numbers_of_python() -> None:
    options = make_options(minibatch=np.int64(16), seed=np.int32(3), density=np.float32(0.5))
    assert json.dumps(options.recipe())
    assert options == make_options(minibatch=16, seed=3, density=0.5)
    assert et.SGD(lr=np.float64(0.5)) == et.SGD(lr=0.5) and type(et.SGD(lr=1).lr) is float


def test_trainer_refuses_keywords_of_a_wrong_type(digits, tmp_path: Path) -> None:
    fields = [field.name for field in dataclasses.fields(Settings)]
    keywords = ["out", *(name for name in fields if name != "validation")]
    for name in keywords:
        with pytest.raises(UsageError, match=name):
            et.Trainer(digits, "digits", **{name: Wrong()})
    for wrong in ({"save_steps": 5}, {"save_total_limit": 5}, {"save_seconds": 5.0}):
        with pytest.raises(UsageError, match="without out"):
            et.Trainer(digits, "digits", **wrong)
    with pytest.raises(UsageError, match="program"):
        et.Trainer(Wrong(), "digits")
    with pytest.raises(UsageError, match="Did you mean save_steps"):
        et.Trainer(digits, "digits", save_every=5)
    trainer = et.Trainer(digits, "digits", tmp_path)
    for length in ({"steps": 1.0}, {"steps": 0}, {"epochs": "1"}, {"epochs": 0}):
        with pytest.raises(UsageError, match=next(iter(length))):
            trainer.fit(**length)
    trainer.close()


def test_models_that_are_none_are_refused() -> None:
    for call in (et.compile, et.plan):
        with pytest.raises(UsageError, match="load_onnx"):
            call(3)
    with pytest.raises(UsageError, match="minibatch"):
        et.loss_and_gradients(et.load_onnx(MODEL), {"x": np.zeros((2, 64))}, [0, 0], minibatch=2)
