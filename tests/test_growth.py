"""The benchmarks' process growth is what a user who trains from Python sees."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from benchmarks import memory


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_growth_is_measured_through_a_trainer(digits: et.Program, tmp_path: Path) -> None:
    """Everything that the first steps load counts, including the Trainer's imports."""
    data = memory.write_data(digits, tmp_path / "data")
    path = digits.save(tmp_path / "digits.edge")
    command = [sys.executable, "-m", "benchmarks.trained", str(path), data]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=et.__path__[0] + "/.."
    )
    found = json.loads(done.stdout)
    assert found["grown"] >= found["private"] >= digits.arena_nbytes + 2 * 2**20
    assert len(found["losses"]) == 2 and np.isfinite(found["losses"]).all()
    again = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert (again["losses"], again["digest"]) == (found["losses"], found["digest"])


def test_drawn_data_has_the_fields_and_ranges_of_a_program(
    digits: et.Program, tmp_path: Path
) -> None:
    source = et.open_data(memory.write_data(digits, tmp_path / "data"))
    assert source.n == memory.STEPS * digits.minibatch
    classes = np.load(tmp_path / "data" / "y.npy")
    assert classes.min() >= 0 and classes.max() < digits.limits["loss.target"]
