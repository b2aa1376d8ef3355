"""The one allocation: what cannot be had is refused before it is asked for."""

import pytest

from edgetrain.errors import RunError
from edgetrain.runtime.arena import Arena, memory_nbytes


def test_arena_beyond_the_memory_of_the_machine_is_refused():
    """A mapping of it succeeds, and the process is killed when it is used."""
    nbytes = (memory_nbytes() // 64 + 1) * 64
    with pytest.raises(RunError, match=f"arena of {nbytes} bytes: this machine has .* a budget"):
        Arena(nbytes)
