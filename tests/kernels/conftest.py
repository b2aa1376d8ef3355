"""Fixed seeds and generous deadlines: the first call of a kernel compiles it."""

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("kernels", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("kernels")


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(1234)
