"""What is being done just now: rooms say it where it may take long, the command line shows it."""

from collections.abc import Iterator
from contextlib import contextmanager

_stages: list[str] = []


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Within the context this is being done, such as "kernel 7 of 31"."""
    _stages.append(text)
    try:
        yield
    finally:
        _stages.remove(text)


def current() -> str | None:
    """The stage that began last; None where nothing long is being done."""
    return _stages[-1] if _stages else None
