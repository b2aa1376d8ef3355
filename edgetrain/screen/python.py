"""Output of `compile`, `fit` and `evaluate` in Python: the same lines and bar as in the shell."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from ..errors import printable
from .levels import Levels, levels, logger
from .progress import Event, Progress, describe, make_progress
from .tables import account_lines, metric_lines, statistics_lines
from .waiting import waited

_INFO, _WARNING = 20, 30  # levels of logging
_WARNINGS = ("warning", "note", "skip")  # events other than progress


@contextmanager
def following(verbose: bool | None) -> Iterator[Progress | None]:
    """A function that shows an event; None if nothing is shown."""
    shown = levels(verbose)
    if not any(shown):
        yield None
    elif not shown.progress or logger() is not None:
        yield _Lines(shown)
    else:
        with make_progress(False) as progress:
            yield progress


class _Lines:
    """Events as lines: only warnings, or everything for a logger's handlers."""

    def __init__(self, shown: Levels) -> None:
        self._shown = shown

    def __call__(self, event: Event) -> None:
        warns = event["event"] in _WARNINGS
        if (warns and self._shown.warnings) or (self._shown.progress and event["event"] != "step"):
            say(describe(event), _WARNING if warns else _INFO)


def say(text: str, level: int = _INFO) -> None:
    """Print on standard error, or pass to the logger's handlers."""
    result = logger()
    if text and result is not None:
        result.log(level, "%s", text)
    elif text and sys.stderr is not None:
        try:
            print(printable(text, "\n"), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # closed or full: training continues
            return


@contextmanager
def waiting(verbose: bool | None, text: str) -> Iterator[None]:
    """Print the text of a task if it takes long within the context."""
    with waited(text, True) if levels(verbose).progress and not logger() else nullcontext():
        yield


def show_notes(verbose: bool | None, notes: Iterable[str]) -> None:
    """Print the notes of the importer."""
    if levels(verbose).warnings:
        for note in notes:
            say(f"note: {note}", _WARNING)


def show_plan(verbose: bool | None, account: Mapping[str, Any]) -> None:
    """Print the memory account; if only warnings are shown, only differences from the request."""
    shown = levels(verbose)
    if shown.progress:
        say("\n".join(account_lines(account)))
    elif shown.warnings:
        say("\n".join(statistics_lines(account)), _WARNING)


def show_metrics(verbose: bool | None, metrics: Mapping[str, Any]) -> None:
    """Print the result of an evaluation."""
    if levels(verbose).progress:
        say("\n".join(metric_lines(metrics)))
