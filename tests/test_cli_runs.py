"""The command line if a run cannot be written, is ended from outside, or gets no memory."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgetrain.cli import main
from edgetrain.cli.device.limited import address_limit, needed
from edgetrain.cli.parser.arguments import parse, resume_line
from edgetrain.cli.parser.namespace import Namespace
from edgetrain.runtime.run.lock import RunLock
from tests.digits_runs import MODEL

LONG = "n" * 256


def outcome(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    """Exit status and stderr, which must be at most one line."""
    status = main([str(part) for part in argv])
    err = capsys.readouterr().err
    assert err.count("\n") <= 1 and "Traceback" not in err and "unexpected" not in err, err
    return status, err


@pytest.mark.parametrize("place", ["file", "file/below", LONG, f"{LONG}/below", "", "/proc/none/x"])
def test_places_that_cannot_be_written_are_found_before_the_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, digits_edge: Path, place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    train = ("--data", "digits", "--steps", 1, "--no-eval")
    below = f"{place}/x" if place == "file" else place
    for option, argv in (
        ("--out", ("train", digits_edge, *train, "--out", place)),
        ("--out", ("train", "missing.onnx", *train, "--out", place)),
        ("-o", ("compile", "missing.onnx", "-o", below)),
        ("-o", ("export", "missing", "-o", below)),
        ("--picture", ("plan", "missing.onnx", "--picture", f"{below}/p.svg")),
        ("--pareto", ("plan", "missing.onnx", "--pareto", f"{below}/p.png")),
    ):
        if place or option in ("--out", "-o"):
            status, err = outcome(capsys, *argv)
            assert (status, option in err) == (2, True), (argv, err)
    assert os.listdir() == ["file"] and Path("file").read_text() == "mine"


def test_a_name_as_long_as_the_file_system_allows_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, digits_edge: Path
) -> None:
    out, exported = tmp_path / ("r" * 255), tmp_path / ("e" * 250 + ".onnx")
    argv = ("train", digits_edge, "--data", "digits", "--steps", 1, "--no-eval", "--out", out)
    assert main([str(part) for part in argv]) == 0
    assert main(["export", str(out), "-o", str(exported)]) == 0
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(
    "argv",
    [("train", "missing.onnx", "--data", "digits", "--epochs", 1),
     ("train", "missing.onnx", "--data", "digits", "--epochs", 1, "--out", "a/b/c"),
     ("train", "{edge}", "--data", "npz:none.npz", "--epochs", 1, "--out", "a/b/c")],
)  # fmt: skip
def test_a_run_that_does_not_begin_leaves_no_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, digits_edge: Path, argv: tuple,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    status, _ = outcome(capsys, *(str(part).format(edge=digits_edge) for part in argv))
    assert status == 4 and os.listdir() == []


def test_a_refused_monitor_leaves_no_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, digits_edge: Path
) -> None:
    out = tmp_path / "run"
    argv = ["train", digits_edge, "--data", "digits", "--steps", 1, "--out", out, "--metrics", "f1"]
    argv += ["--monitor", "f1", "--keep-best"]
    status = main([*map(str, argv), "--no-eval"])
    assert (status, "monitor 'f1'" in capsys.readouterr().err, out.exists()) == (2, True, False)
    assert main([str(part) for part in argv]) == 0


def test_an_older_checkpoint_is_named_where_the_newest_is_damaged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, digits_edge: Path
) -> None:
    out, exported = tmp_path / "run", tmp_path / "out.onnx"
    argv = ["train", digits_edge, "--data", "digits", "--steps", 2, "--save-steps", 1]
    assert main([str(part) for part in (*argv, "--no-eval", "--out", out)]) == 0
    newest = out / "step-00000002.ckpt"
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    capsys.readouterr()
    for command in (["export", out, "-o", exported], ["eval", out, "--data", "digits"]):
        status, err = outcome(capsys, *command)
        assert status == 0 and err.startswith("warning: ") and str(newest) in err
        assert f"Using the older {out / 'step-00000001.ckpt'}." in err


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.15, 0.3])
@pytest.mark.parametrize("command", ["plan", "train"])
def test_an_interrupt_while_loading_is_one_line(command: str, seconds: float) -> None:
    argv = [sys.executable, "-c", _ENTRY, command, MODEL]
    argv += ["--data", "digits", "--steps", "1000000"] if command == "train" else ["--prove"]
    process = subprocess.Popen(
        [*map(str, argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in err and "Traceback" not in err and "IMPORTANT" not in err, err


_ENTRY = """
import sys
import time
from edgetrain import __main__ as entry
command_line = entry.main
import signal
usual = signal.signal
def begun(*given):
    result = usual(*given)
    signal.signal = usual
    print("begun", flush=True)
    return result
signal.signal = begun
sys.exit(command_line())
"""


def test_a_directory_in_use_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, digits_edge: Path
) -> None:
    run = tmp_path / "run"
    argv = ["train", digits_edge, "--data", "digits", "--steps", 3, "--no-eval", "--out", run]
    run.mkdir()
    lock = RunLock(run)
    try:
        for more in ([], ["--resume", run]):
            status, err = outcome(capsys, *argv, *more)
            assert status == 2 and f"process {os.getpid()} on" in err and str(run) in err
        assert os.listdir(run) == ["run.lock"]
    finally:
        lock.release()
    assert main([str(part) for part in argv]) == 0


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_stopped_run_says_the_command_that_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, digits_edge: Path, signum: int,
    status: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from edgetrain.screen import progress

    def stopping(event: dict) -> None:
        if event["event"] == "step" and event["step"] == 5:
            os.kill(os.getpid(), signum)

    out = tmp_path / "my run"
    argv = ["train", digits_edge, "--data", "digits", "--epochs", 0.1, "--no-eval", "--lr", 0.02,
            "--save-steps", 50, "--threads", 1, "--json", "--out", out]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(progress, "_json_line", stopping)
        found, err = outcome(capsys, *argv)
    assert found == status and "after step 5" in err and "step-00000005.ckpt" in err
    command = err[err.index("edgetrain train --resume") :].strip()
    expected = f"edgetrain train --resume '{out}' --data digits --epochs 0.1 --save-steps 50"
    assert command == f"{expected} --no-eval --threads 1"
    words = ["train", "--resume", str(out), *command.split("' ")[1].split()]
    assert main(words) == 0
    assert len(os.listdir(out)) == 5


def test_rates_that_are_none_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], digits_edge: Path, tmp_path: Path
) -> None:
    cases = {
        "--lr": ["nan", "inf", "-1", "1e39"], "--lr-gamma": ["nan", "-inf"], "--eps": ["0", "nan"],
        "--momentum": ["nan", "1"], "--weight-decay": ["inf"], "--max-grad-norm": ["inf", "-1"],
        "--beta1": ["nan"], "--beta2": ["1"], "--dampening": ["nan"], "--warmup-steps": ["-1"],
        "--label-smoothing": ["nan"], "--save-steps": ["-1"], "--save-total-limit": ["0"],
    }  # fmt: skip
    out = tmp_path / "run"
    for option, values in cases.items():
        for value in values:
            given = f"{option}={value}"
            argv = ("train", MODEL, "--data", "digits", "--epochs", 1, "--out", out, given)
            status, err = outcome(capsys, *argv)
            assert status == 2 and option in err and "expected a" in err, err
    assert not out.exists()


@pytest.mark.parametrize("mebibytes", [40, 150, 279, 400, 559])
def test_too_little_address_space_is_said_in_one_line(digits_edge: Path, mebibytes: int) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes * 2**20, mebibytes * 2**20))

    file = digits_edge if mebibytes < 280 else MODEL
    argv = ["train", file, "--data", "digits", "--steps", 1]
    ended = subprocess.run(
        [sys.executable, "-m", "edgetrain.cli", *map(str, argv)], capture_output=True, text=True,
        preexec_fn=limited, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 1 and ended.stdout == ""
    assert ended.stderr.count("\n") == 1 and "not enough memory" in ended.stderr
    assert f"{mebibytes}.0 MiB" in ended.stderr and "ulimit -v" in ended.stderr


_SUPERVISED = """
import ctypes, os, sys, time
from edgetrain import cli

def failing(arguments, loaded):
    os.write(2, b"noise of a library\\n")
    {failure}

cli._quietly = failing
sys.exit(cli.main(["ops"]))
"""


@pytest.mark.parametrize(
    ("failure", "status", "line"),
    [
        ("os.abort()", 1, "not enough memory"),
        ("os._exit(127)", 1, "not enough memory"),
        ("ctypes.CDLL(None).exit(1)", 1, "not enough memory"),
        ("return cli._say(arguments, 'done')", 1, "edgetrain ops: done"),
        ("os.kill(os.getppid(), 15); time.sleep(30)", -15, ""),
    ],
)
def test_a_library_that_ends_the_process_is_explained(failure: str, status: int, line: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SUPERVISED.format(failure=failure)], capture_output=True,
        text=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)),
    )  # fmt: skip
    assert "noise" not in ended.stderr and ended.stderr.count("\n") == bool(line), ended.stderr
    assert (ended.returncode, line in ended.stderr) == (status, True)


def test_needs_are_by_command() -> None:
    assert address_limit() is None or address_limit() > 2**30
    assert needed("train", "m.edge") < needed("train", "m.onnx") == needed("plan", "m.onnx")
    assert needed("ops", "") == 0


@pytest.mark.parametrize("epochs", ["1234567", "0.123456789", "3", "2.5"])
def test_the_command_that_goes_on_has_the_epochs_exactly(epochs: str) -> None:
    arguments = parse(["train", "m.onnx", "--data", "digits", "--epochs", epochs])
    assert isinstance(arguments, Namespace)
    line = resume_line(arguments, "run")
    assert line == f"edgetrain train --resume run --data digits --epochs {epochs}"


def test_the_command_that_goes_on_has_names_exactly() -> None:
    arguments = parse(["train", "m.onnx", "--data", "npz:v1.0", "--epochs", "3"])
    assert isinstance(arguments, Namespace)
    assert "--data npz:v1.0 " in resume_line(arguments, "run")
