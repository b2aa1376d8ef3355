"""The current phase of long work, set by the code that does it and shown by the command line."""

from collections.abc import Iterator
from contextlib import contextmanager

_phases: list[str] = []


@contextmanager
def phase(text: str) -> Iterator[None]:
    """Name the work done within the context, such as "kernel 7 of 31"."""
    _phases.append(text)
    try:
        yield
    finally:
        _phases.remove(text)


def current() -> str | None:
    """The newest phase; None outside of phases."""
    return _phases[-1] if _phases else None
