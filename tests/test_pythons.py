"""The supported versions of Python and packages are the same wherever they are named."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOWEST, ABOVE = (int(n) for n in re.findall(r"3\.(\d+)", PROJECT["requires-python"]))


def test_this_python_is_a_supported_one():
    assert LOWEST <= sys.version_info[1] < ABOVE


def test_classifiers_name_every_supported_python():
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert named == [f"3.{n}" for n in range(LOWEST, ABOVE)]


@pytest.mark.parametrize("file", ["README.md", "Makefile", "docs/start.md", "docs/systems.md"])
def test_documents_name_the_same_range(file):
    assert f"Python 3.{LOWEST} to 3.{ABOVE - 1}" in (ROOT / file).read_text()


def test_kernel_wheels_ask_for_the_same_pythons():
    text = (ROOT / "tools" / "kernel_wheels.py").read_text()
    assert f"Requires-Python: {PROJECT['requires-python']}\n" in text


def test_hosted_ci_runs_every_supported_python():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (listed,) = re.findall(r"python: \[(.*)\]", text)
    assert listed == ", ".join(f'"3.{n}"' for n in range(LOWEST, ABOVE))


@pytest.mark.parametrize("minor", [LOWEST - 1, ABOVE])
def test_make_refuses_another_python_in_one_line(minor, tmp_path):
    fake = tmp_path / "python3"
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = -V ] && {{ echo Python 3.{minor}.0; exit; }}\n'
        f'exec {sys.executable} -c "import sys; sys.version_info = (3, {minor}, 0)\n$2"\n'
    )
    fake.chmod(0o755)
    done = subprocess.run(
        ["make", "-s", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/bin/python", f"PYTHON={fake}"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode
    assert f"3.{LOWEST} to 3.{ABOVE - 1}; found Python 3.{minor}.0" in done.stderr.splitlines()[0]
    assert not (tmp_path / "venv").exists()
