"""Parameters of which `make test` runs only some; the others run with the slow tests."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_unless(values: Iterable[Any], quick: Callable[[Any], bool]) -> list[Any]:
    """Values for `parametrize`: slow if not `quick`. A tuple stands for several arguments."""
    return [
        value if quick(value) else pytest.param(*_arguments(value), marks=pytest.mark.slow)
        for value in values
    ]


def slow_except(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Like `slow_unless`, for a list of quick values."""
    values = list(values)
    missing = [value for value in quick if value not in values]
    assert not missing, missing
    return slow_unless(values, lambda value: value in quick)


def slow_between(values: Iterable[Any], every: int) -> list[Any]:
    """Like `slow_unless`: the first value and each `every`-th one after it are quick."""
    values = list(values)
    quick = values[::every]
    return slow_unless(values, lambda value: any(value is one for one in quick))


def _arguments(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
