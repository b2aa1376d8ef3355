"""Fixtures for the compiler tests."""

from collections.abc import Iterator

import pytest

from ..planner import hurried


@pytest.fixture(scope="module")
def quick_planner() -> Iterator[None]:
    """Give the planner a hundredth of its effort: enough for nets of a few nodes."""
    with hurried():
        yield
