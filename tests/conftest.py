"""Compiled once for every test that only reads them."""

import os
import signal
from pathlib import Path

import pytest

from edgetrain.compiler.plan.allowed import ResolvedOptions
from edgetrain.program import Program, program
from tests.digits_runs import digits_program

# No lines for people who wait, also of commands that tests start: when they come depends on the
# machine.
os.environ["EDGETRAIN_PROGRESS"] = "0"
# A suite in a shell's background, or behind nohup, inherits ignored signals, and so would the
# commands that tests start and interrupt.
for _name, _answer in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _answer)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--interpret", action="store_true", help="run kernels of tests/kernels in plain Python"
    )


@pytest.fixture(scope="session", autouse=True)
def all_workers() -> None:
    """Nets of tests are small: without this one thread would do all of their work."""
    program.ALONE = 0


@pytest.fixture(scope="session")
def digits() -> Program:
    """The demo's model, the fastest plan."""
    return digits_program()


@pytest.fixture(scope="session")
def digits_edge(digits: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file."""
    return digits.save(tmp_path_factory.mktemp("digits") / "digits.edge")


@pytest.fixture
def every_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is allowed is taken, whether it helps or not: in nets of tests it often does not."""
    monkeypatch.setattr("edgetrain.compiler.compile.resolved_options", ResolvedOptions)
