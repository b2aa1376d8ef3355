"""The parity reports: README matches them, and without a device there is a reason, not a report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from device_tests.parity_report import REPORTS, line_of
from examples.zoo import ZOO

ROOT = Path(__file__).parents[1]


def test_readme_names_the_device_of_the_cuda_report():
    report = json.loads((REPORTS / "cuda_parity.json").read_text())
    device = report["device"].removeprefix("NVIDIA ")
    assert report["cuda"] and device in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*_parity.json")), ids=lambda p: p.stem)
def test_report_has_every_model_of_the_zoo_in_both_references(path):
    report = json.loads(path.read_text())
    assert set(report["models"]) == set(ZOO)
    for name, result in report["models"].items():
        assert result["ok"] and result["fp64"]["ok"] and result["fp32"]["ok"], (name, result)


def test_a_failed_model_is_one_line():
    assert line_of("mlp", {"ok": False, "error": "OSError: gone"}).split() == [
        "mlp", "FAILED", "OSError:", "gone",
    ]  # fmt: skip


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_without_a_cuda_device_the_reason_is_said_and_no_report_written(tmp_path):
    argv = [sys.executable, "-m", "device_tests.parity_report", "--device", "cuda"]
    out = tmp_path / "report.json"
    ended = subprocess.run([*argv, "--out", out], capture_output=True, text=True, cwd=ROOT)
    assert (ended.returncode, out.exists()) == (0, False), ended.stderr
    assert ended.stdout == "parity on CUDA: skipped, torch finds no CUDA device here\n"
