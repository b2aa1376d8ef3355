"""The accuracy benchmark's short runs start as documented, dense and sparse."""

import json
import sys

import numpy as np
import pytest

from benchmarks import accuracy


@pytest.fixture
def digits(tmp_path):
    """Twenty random pictures for training and twenty for testing, in an npz file."""
    rng, arrays = np.random.default_rng(0), {}
    for split in ("train", "test"):
        arrays[f"{split}_images"] = rng.integers(0, 256, (20, 28, 28), dtype=np.uint8)
        arrays[f"{split}_labels"] = rng.integers(0, 10, 20, dtype=np.uint8)
    np.savez(tmp_path / "digits.npz", **arrays)
    return tmp_path / "digits.npz"


@pytest.mark.parametrize(
    "options", [["--convolutions", "direct"], ["--density", "0.3", "--rewiring", "dsr"]]
)
def test_a_run_writes_losses_and_accuracies_of_both(digits, tmp_path, monkeypatch, options):
    out = tmp_path / "accuracy.json"
    command = ["mnist", str(digits), "--minibatch", "10", "--threads", "1", "--torch"]
    monkeypatch.setattr(sys, "argv", ["accuracy", *command, *options, "--out", str(out)])
    accuracy.main()
    written = json.loads(out.read_text())
    ours, torch = written["edgetrain"], written["torch"]
    assert len(ours["losses"]) == len(torch["losses"]) == 2
    assert 0 <= ours["accuracy"] <= 1 and 0 <= torch["accuracy"] <= 1
    if "--density" not in options:
        np.testing.assert_allclose(ours["losses"], torch["losses"], rtol=1e-4)
