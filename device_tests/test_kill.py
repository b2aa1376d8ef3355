"""SIGKILL and Ctrl-C at any moment; the resumed run ends with the same bits."""

import os
import pty
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from device_tests.kill_modes import MODES
from device_tests.limits import ROOT, command, one_core, run, said_in_one_line, succeeded
from edgetrain.history import HISTORY_FILE
from edgetrain.runtime.run.checkpoint import latest, step_files
from edgetrain.screen.curve import CURVE_FILE
from tests.digits_runs import digits_program
from tests.runtime.conftest import assert_same_bits

STEPS = 150


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_program().save(tmp_path_factory.mktemp("edge") / "digits.edge")


def train(edge: Path, out: Path) -> list[str]:
    return command(
        "train", edge, "--data", "digits", "--no-eval", "--steps", STEPS, "--save-steps", 3,
        "--lr-schedule", "cosine", "--out", out, "--resume", out, "--json",
    )  # fmt: skip


def final_state(out: Path) -> dict[str, np.ndarray]:
    loaded = latest(out)
    assert loaded is not None and loaded.meta["step"] == STEPS
    return loaded.tensors


def other_files(out: Path) -> set[str]:
    """Names of the files in a run's directory, without its checkpoints."""
    return {path.name for path in {*out.iterdir()} - {*step_files(out)}}


@pytest.fixture(scope="module")
def whole(edge: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, float]:
    """Final state of an uninterrupted run, and the seconds it took."""
    out = tmp_path_factory.mktemp("whole")
    succeeded(run(train(edge, out / "warm")))
    start = time.monotonic()
    succeeded(run(train(edge, out / "run")))
    return final_state(out / "run"), time.monotonic() - start


@pytest.mark.parametrize("seed", range(20))
def test_a_killed_run_resumes_to_the_same_bits(
    edge: Path, whole: tuple[dict, float], tmp_path: Path, seed: int
) -> None:
    expected, seconds = whole
    draw = random.Random(seed)
    for _ in range(2):
        process = subprocess.Popen(
            train(edge, tmp_path / "run"), cwd=ROOT, stdout=subprocess.DEVNULL
        )
        time.sleep(seconds * draw.uniform(0.1, 0.9))
        process.kill()
        process.wait()
    succeeded(run(train(edge, tmp_path / "run")))
    assert_same_bits(final_state(tmp_path / "run"), expected)
    assert other_files(tmp_path / "run") == {"program.edge", HISTORY_FILE, CURVE_FILE}


def test_ctrl_c_ends_with_130_and_the_run_goes_on(
    edge: Path, whole: tuple[dict, float], tmp_path: Path
) -> None:
    process = subprocess.Popen(
        train(edge, tmp_path / "run"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if '"step": 20,' in line:
            process.send_signal(signal.SIGINT)
            break
    _, stderr = process.communicate(timeout=60)
    ended = subprocess.CompletedProcess([], process.returncode, "", stderr)
    assert ended.returncode == 130 and "interrupted after step" in said_in_one_line(ended)
    assert step_files(tmp_path / "run")
    succeeded(run(train(edge, tmp_path / "run")))
    assert_same_bits(final_state(tmp_path / "run"), whole[0])


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_and_says_the_command_that_goes_on(
    edge: Path, whole: tuple[dict, float], tmp_path: Path, signum: int, status: int
) -> None:
    process = subprocess.Popen(
        train(edge, tmp_path / "run"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    next(line for line in process.stdout if '"step": 20,' in line)
    process.send_signal(signum)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status
    again = shlex.split(stderr[stderr.index("edgetrain train --resume") :])
    succeeded(run(command(*again[1:])))
    assert_same_bits(final_state(tmp_path / "run"), whole[0])


def test_sixty_runs_in_every_mode_reach_the_same_bits(tmp_path: Path) -> None:
    """The whole campaign; tests/runtime/test_kills.py has part of it."""
    page = tmp_path / "kills.md"
    ended = run([sys.executable, "-m", "device_tests.kills", "--out", str(page)], seconds=3600)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == len(MODES) + 2 and "| 60 of 60 | 0 |" in rows[-1]


def test_a_terminal_that_hangs_up_ends_the_run_saved(edge: Path, tmp_path: Path) -> None:
    argv = [part for part in train(edge, tmp_path / "run") if part != "--json"]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.execv(argv[0], argv)
    while not step_files(tmp_path / "run"):
        os.read(terminal, 65536)
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 129 and step_files(tmp_path / "run")
    assert other_files(tmp_path / "run") == {"program.edge", HISTORY_FILE, CURVE_FILE}


def test_two_threads_share_one_core(edge: Path, whole: tuple[dict, float], tmp_path: Path) -> None:
    succeeded(run(train(edge, tmp_path / "run"), one_core))
    assert_same_bits(final_state(tmp_path / "run"), whole[0])
