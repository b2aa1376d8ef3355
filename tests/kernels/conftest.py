"""Fixtures of the kernel tests: fixed seeds, and long deadlines because a first call compiles."""

import numpy as np
import pytest
from hypothesis import Phase, settings

from . import harness

# No shrinking: it would take minutes when a kernel fails to compile.
settings.register_profile(
    "kernels",
    deadline=None,
    derandomize=True,
    max_examples=25,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("kernels")


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator with a fixed seed."""
    return np.random.default_rng(1234)


@pytest.fixture(autouse=True)
def _no_call_yet() -> None:
    harness.LAST.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Print the command that reruns the last kernel call when a test fails (CONTRIBUTING.md)."""
    report = yield
    if report.failed and call.when == "call":
        command = harness.reproduction(item.name)
        if command:
            report.sections.append(("the kernel's last call", command))
    return report


def pytest_configure(config: pytest.Config) -> None:
    """With --interpret, run every kernel call in plain Python."""
    harness.INTERPRET = config.getoption("--interpret")
