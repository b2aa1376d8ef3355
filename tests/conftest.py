"""Compiled once for every test that only reads them."""

import copy
import functools
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from edgetrain.compiler.plan.allowed import ResolvedOptions
from edgetrain.program import Program, program
from tests.digits_runs import digits_program
from tests.kept import FOLDER

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


def pytest_configure(config: pytest.Config) -> None:
    if FOLDER not in os.environ:  # workers are given their controller's
        folder = tempfile.TemporaryDirectory()
        os.environ[FOLDER] = folder.name
        config.add_cleanup(folder.cleanup)


def pytest_runtest_setup() -> None:
    # Not imported for it: many tests need no torch.
    module = sys.modules.get("torch.onnx._internal.exporter._registration")
    if module is not None:
        _keep_translations(module.ONNXRegistry)


@functools.cache
def _keep_translations(registry: Any) -> None:
    """Have torch read its table of translations to ONNX once, a third of an export's time."""
    read = functools.cache(registry.from_torchlib)

    def from_torchlib(*args, **options):
        found = copy.copy(read(*args, **options))
        found.functions = {name: list(known) for name, known in found.functions.items()}
        return found

    registry.from_torchlib = staticmethod(from_torchlib)


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
