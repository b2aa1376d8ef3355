"""Some of the runs that `device_tests.kills` ends repeatedly."""

import subprocess
import sys

from tests.digits_runs import ROOT

MODES = "digits: fp16, loss scaling", "skipped steps, fp16", "stream raises"


def test_ended_runs_reach_the_bits_of_one_that_never_was() -> None:
    argv = [
        sys.executable,
        "-m",
        "device_tests.kills",
        "--runs",
        "3",
        "--kills",
        "3",
        "--seed",
        "4",
    ]
    run = subprocess.run([*argv, "--modes", *MODES], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    cells = [cell.strip() for cell in run.stdout.splitlines()[-1].split("|")[1:-1]]
    assert [*cells[:3], *cells[-2:]] == ["all", "3", "9", "3 of 3", "0"]
