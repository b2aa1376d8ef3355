"""Compiled once for every test that only reads them."""

from pathlib import Path

import pytest

from edgetrain.cli import waiting
from edgetrain.program import Program
from tests.digits_runs import digits_program


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands print no lines for people who wait: when they come depends on the machine."""
    monkeypatch.setattr(waiting, "FIRST", 1e9)


@pytest.fixture(scope="session")
def digits() -> Program:
    """The demo's model, the fastest plan."""
    return digits_program()


@pytest.fixture(scope="session")
def digits_edge(digits: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file."""
    return digits.save(tmp_path_factory.mktemp("digits") / "digits.edge")
