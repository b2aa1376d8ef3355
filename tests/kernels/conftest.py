"""Fixed seeds and generous deadlines: the first call of a kernel compiles it."""

import numpy as np
import pytest
from hypothesis import Phase, settings

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
