"""Models of a few nodes need no search: their planner gets a hundredth of its effort."""

from collections.abc import Iterator

import pytest

from ..planner import hurried


@pytest.fixture(autouse=True, scope="package")
def quick_planner() -> Iterator[None]:
    """The planner of every test here."""
    with hurried():
        yield
