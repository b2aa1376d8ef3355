"""A disk that loses writes: what reads back otherwise is refused, and what was there stays."""

import os
from pathlib import Path

import numpy as np
import pytest

from edgetrain.cli import main
from edgetrain.errors import RunError
from edgetrain.program.atomic import write_atomically
from edgetrain.program.medium import file_sum, medium_sum
from edgetrain.runtime.run.checkpoint import latest, save_step, step_files

STATE = {"w": np.arange(3000, dtype=np.float32), "v": np.ones(5000, np.float32)}


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch):
    """A flush that leaves other bytes at a place: what was there before the write, or nothing."""

    def at(place: int, nbytes: int = 512) -> None:
        flush = os.fsync

        def lose(handle: int) -> None:
            flush(handle)
            name = os.readlink(f"/proc/self/fd/{handle}")
            if os.path.isfile(name):
                with open(name, "r+b") as file:
                    file.seek(place)
                    found = file.read(nbytes)
                    file.seek(place)
                    file.write(bytes(byte ^ 0xFF for byte in found))

        monkeypatch.setattr(os, "fsync", lose)

    return at


@pytest.mark.parametrize("place", [0, 80, 700, 4096, 16384, 30000])
def test_a_lost_write_is_found_and_older_checkpoints_stay(tmp_path: Path, losing, place) -> None:
    for step in (1, 2):
        save_step(tmp_path, step, STATE, {"step": step}, save_total_limit=2, verify=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    losing(place)
    with pytest.raises(RunError, match="other bytes than were written"):
        save_step(tmp_path, 3, STATE, {"step": 3}, save_total_limit=2, verify=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    loaded = latest(tmp_path)
    assert loaded is not None and loaded.meta["step"] == 2


@pytest.mark.parametrize("asked", [True, False])
def test_a_run_ends_by_a_lost_write(
    digits_edge: Path, tmp_path: Path, losing, capsys, asked: bool
) -> None:
    base = ["train", str(digits_edge), "--data", "digits", "--no-eval", "--save-steps", "2"]
    base += ["--verify-saves"] * asked
    assert main([*base, "--out", str(tmp_path / "run"), "--steps", "2"]) == 0
    losing(2000)
    capsys.readouterr()
    status = main([*base, "--resume", str(tmp_path / "run"), "--steps", "4"])
    said = capsys.readouterr().err
    assert (status, "other bytes than were written" in said) == (int(asked), asked)
    loaded = latest(tmp_path / "run")
    assert loaded is not None and loaded.meta["step"] == 2


def test_without_it_nothing_is_read_back(tmp_path: Path, losing) -> None:
    losing(4096)
    save_step(tmp_path, 1, STATE, {"step": 1})
    assert len(step_files(tmp_path)) == 1


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 2**20, 2**20 + 77])
def test_sums_are_of_the_whole_file(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    write_atomically(tmp_path / "f", lambda file: file.writelines([data]), verify=True)
    assert medium_sum(tmp_path / "f") == file_sum(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == data
