"""Shared by the tests of the compiler."""

from collections.abc import Iterator

import pytest

from ..planner import hurried


@pytest.fixture(scope="module")
def quick_planner() -> Iterator[None]:
    """The planner gets a hundredth of its effort: enough for nets of a few nodes."""
    with hurried():
        yield
