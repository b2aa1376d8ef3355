"""A full or read-only disk gives a one-line error, and files on it stay valid."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_tests.limits import command, file_size, run, said_in_one_line, succeeded
from edgetrain.history import HISTORY_FILE
from edgetrain.runtime.run.checkpoint import latest, step_files
from edgetrain.screen.curve import CURVE_FILE
from tests.digits_runs import digits_program


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_program().save(tmp_path_factory.mktemp("edge") / "digits.edge")


def train(edge: Path, out: Path, *more: object) -> list[str]:
    return command(
        "train", edge, "--data", "digits", "--no-eval", "--save-steps", 5, *more, "--out", out
    )


def test_a_file_too_large_for_the_disk_ends_the_run_and_keeps_the_last_state(
    edge: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    succeeded(run(train(edge, out, "--steps", 10)))
    more = command(
        "train", "--resume", out, "--data", "digits", "--no-eval", "--steps", 30, "--save-steps", 5
    )
    ended = run(more, file_size(10_000))
    assert ended.returncode == 1 and "step-00000015.ckpt" in said_in_one_line(ended)
    loaded = latest(out)
    assert loaded is not None and loaded.meta["step"] == 10 and loaded.warning is None
    assert {p.name for p in out.iterdir()} == {
        "program.edge", "step-00000005.ckpt", "step-00000010.ckpt", HISTORY_FILE, CURVE_FILE,
    }  # fmt: skip
    succeeded(run(more))


def test_a_program_that_does_not_fit_leaves_nothing(edge: Path, tmp_path: Path) -> None:
    ended = run(train(edge, tmp_path / "run", "--steps", 1), file_size(1000))
    assert ended.returncode == 1 and "program.edge" in said_in_one_line(ended)
    assert list((tmp_path / "run").iterdir()) == []


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs; skip the test if this user may not."""
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(argv, capture_output=True).returncode:
        pytest.skip("this user may not mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_the_run_and_keeps_the_last_state(edge: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "tiny", "size=160k") as tiny:
        ended = run(train(edge, tiny / "run", "--steps", 100, "--save-total-limit", 50))
        assert ended.returncode == 1 and "space" in said_in_one_line(ended)
        files = step_files(tiny / "run")
        assert files and latest(tiny / "run") is not None


def test_a_read_only_directory_is_said_in_one_line(edge: Path, tmp_path: Path) -> None:
    if os.geteuid():
        folder = tmp_path / "locked"
        folder.mkdir(mode=0o555)
        ended = run(train(edge, folder / "run", "--steps", 1))
    else:
        with mounted(tmp_path / "locked", "ro") as folder:
            ended = run(train(edge, folder / "run", "--steps", 1))
    assert ended.returncode == 2
    assert str(folder) in said_in_one_line(ended)


def test_a_read_only_cache_does_not_matter(edge: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "cache", "ro") as folder:
        argv = train(edge, tmp_path / "run", "--steps", 1)
        succeeded(run(argv, env={"EDGETRAIN_CACHE": str(folder / "objects")}))
