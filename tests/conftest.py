"""Fixtures compiled once for all tests that only read them."""

import copy
import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetrain.compiler import cost
from edgetrain.compiler.plan.allowed import ResolvedOptions
from edgetrain.kernels.cache import disk
from edgetrain.program import Program, program
from tests.digits_runs import digits_program
from tests.heeded import heed_signals
from tests.kept import FOLDER

# No progress lines, also in commands that tests start: when they appear depends on the
# machine.
os.environ["EDGETRAIN_PROGRESS"] = "0"
heed_signals()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--interpret", action="store_true", help="run kernels of tests/kernels in plain Python"
    )


def pytest_configure(config: pytest.Config) -> None:
    if FOLDER not in os.environ:  # workers get their controller's
        folder = tempfile.TemporaryDirectory()
        os.environ[FOLDER] = folder.name
        config.add_cleanup(folder.cleanup)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("forks") is None)


def pytest_runtest_setup() -> None:
    # Not imported for this: many tests need no torch.
    module = sys.modules.get("torch.onnx._internal.exporter._registration")
    if module is not None:
        _keep_translations(module.ONNXRegistry)


@functools.cache
def _keep_translations(registry: Any) -> None:
    """Make torch read its table of ONNX translations once; it takes a third of an export."""
    read = functools.cache(registry.from_torchlib)

    def from_torchlib(*args, **options):
        found = copy.copy(read(*args, **options))
        found.functions = {name: list(known) for name, known in found.functions.items()}
        return found

    registry.from_torchlib = staticmethod(from_torchlib)


@pytest.fixture(scope="session", autouse=True)
def all_workers() -> None:
    """Test nets are small: without this, one thread would do all of their work."""
    program.ALONE = 0


@pytest.fixture(scope="session", autouse=True)
def default_rates() -> None:
    """Whoever runs the tests may have measured this machine: estimates would use those rates."""
    cost._measured.append(cost.Rates())


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use a cache folder of the test's own."""
    with monkeypatch.context() as patch:
        patch.setenv("EDGETRAIN_CACHE", str(tmp_path / "cache"))
        disk.directory.cache_clear()
        yield tmp_path / "cache"
    disk.directory.cache_clear()


@pytest.fixture(scope="session")
def digits() -> Program:
    """The demo's model, compiled to the fastest plan."""
    return digits_program()


@pytest.fixture(scope="session")
def digits_edge(digits: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same Program as a file."""
    return digits.save(tmp_path_factory.mktemp("digits") / "digits.edge")


@pytest.fixture
def every_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply every allowed option even if it does not help, as is common in small test nets."""
    monkeypatch.setattr("edgetrain.compiler.compile.resolved_options", ResolvedOptions)
