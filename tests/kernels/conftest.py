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


def pytest_configure(config: pytest.Config) -> None:
    """With --interpret every call of a kernel is one in plain Python."""
    harness.INTERPRET = config.getoption("--interpret")
