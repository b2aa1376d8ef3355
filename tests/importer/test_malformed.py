"""Malformed models: exit status 4, one line that names the object, quickly, in little memory."""

import re
import resource
import subprocess
import sys
import time

import pytest

from edgetrain.cli import main
from edgetrain.errors import InputFileError

from .malformed import write_all

SECONDS = 5.0
NBYTES = 500 * 10**6


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("malformed"))


def test_malformed_models_are_many(paths):
    assert len(paths) >= 100


def test_malformed_models_exit_4_with_one_line_that_names_the_object(paths, capsys):
    wrong, before = [], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, path in paths.items():
        start = time.perf_counter()
        status = main(["plan", str(path), "--loss", "mse", "--minibatch", "2"])
        seconds = time.perf_counter() - start
        lines = capsys.readouterr().err.strip().splitlines()
        named = len(lines) == 1 and re.search(r"'|/|[0-9]", lines[0])
        if status != InputFileError.exit_status or not named or seconds > SECONDS:
            wrong.append((name, status, lines, seconds))
    assert wrong == []
    # In KiB; earlier tests may have grown the process already.
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < NBYTES


@pytest.mark.parametrize("name", ["cut in half", "conv group 3", "external outside"])
def test_malformed_model_ends_the_process_without_a_traceback(paths, name):
    command = [sys.executable, "-m", "edgetrain.cli", "plan", str(paths[name])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == InputFileError.exit_status
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
