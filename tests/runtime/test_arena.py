"""The single allocation: if it cannot succeed, it is refused before it is attempted."""

import pytest

from edgetrain.errors import RunError
from edgetrain.runtime.arena import Arena, memory_nbytes


def test_arena_beyond_the_memory_of_the_machine_is_refused():
    """Mapping it would succeed, but the process would be killed when it uses the memory."""
    nbytes = (memory_nbytes() // 64 + 1) * 64
    with pytest.raises(RunError, match=f"arena of {nbytes} bytes: this machine has .* a budget"):
        Arena(nbytes)
