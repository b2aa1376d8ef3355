"""The current stage of long work, set by the code that does it and shown by the command line."""

from collections.abc import Iterator
from contextlib import contextmanager

_stages: list[str] = []


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Name the work done within the context, such as "kernel 7 of 31"."""
    _stages.append(text)
    try:
        yield
    finally:
        _stages.remove(text)


def current() -> str | None:
    """The newest stage; None outside of stages."""
    return _stages[-1] if _stages else None
