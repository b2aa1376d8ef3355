"""What Python shows of `compile`, `fit` and `evaluate`: the lines and the bar of the shell."""

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
_WARNINGS = ("warning", "note", "skip")  # events that are no progress


@contextmanager
def following(verbose: bool | None) -> Iterator[Progress | None]:
    """A function that shows each event it is called with; None if nothing is shown."""
    shown = levels(verbose)
    if not any(shown):
        yield None
    elif not shown.progress or logger() is not None:
        yield _Lines(shown)
    else:
        with make_progress(False) as progress:
            yield progress


class _Lines:
    """Events as lines: warnings alone, or everything for a logger's handlers."""

    def __init__(self, shown: Levels) -> None:
        self._shown = shown

    def __call__(self, event: Event) -> None:
        warns = event["event"] in _WARNINGS
        if (warns and self._shown.warnings) or (self._shown.progress and event["event"] != "step"):
            say(describe(event), _WARNING if warns else _INFO)


def say(text: str, level: int = _INFO) -> None:
    """Lines on standard error, or for the logger's handlers."""
    found = logger()
    if text and found is not None:
        found.log(level, "%s", text)
    elif text and sys.stderr is not None:
        try:
            print(printable(text, "\n"), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # closed, or full: training goes on
            return


@contextmanager
def waiting(verbose: bool | None, text: str) -> Iterator[None]:
    """Within the context lines say what is being done, if it takes long."""
    with waited(text, True) if levels(verbose).progress and not logger() else nullcontext():
        yield


def show_notes(verbose: bool | None, notes: Iterable[str]) -> None:
    """What a model's importer would have its user know."""
    if levels(verbose).warnings:
        for note in notes:
            say(f"note: {note}", _WARNING)


def show_plan(verbose: bool | None, account: Mapping[str, Any]) -> None:
    """The account of a plan; with warnings alone, what departs from what was asked for."""
    shown = levels(verbose)
    if shown.progress:
        say("\n".join(account_lines(account)))
    elif shown.warnings:
        say("\n".join(statistics_lines(account)), _WARNING)


def show_metrics(verbose: bool | None, metrics: Mapping[str, Any]) -> None:
    """What an evaluation gave."""
    if levels(verbose).progress:
        say("\n".join(metric_lines(metrics)))
