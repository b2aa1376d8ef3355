"""Fixed seeds and generous deadlines: the first call of a kernel compiles it."""

import numpy as np
import pytest
from hypothesis import Phase, settings

from . import harness

# No shrinking: where a kernel does not compile it takes minutes.
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
    """Random numbers that are the same in every run."""
    return np.random.default_rng(1234)


@pytest.fixture(autouse=True)
def _no_call_yet() -> None:
    harness.LAST.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """A test that fails says how to run its last call again (CONTRIBUTING.md)."""
    report = yield
    if report.failed and call.when == "call":
        command = harness.reproduction(item.name)
        if command:
            report.sections.append(("the kernel's last call", command))
    return report


def pytest_configure(config: pytest.Config) -> None:
    """With --interpret every call of a kernel is one in plain Python."""
    harness.INTERPRET = config.getoption("--interpret")
